"""The rules that are published, the texts of the files they stand in, are what the program does."""

import re

from harness.claims import checks, settling, verdicts
from harness.claims.settling import LEAST_SEEDS, Verdict
from harness.claims.verdicts import MATTERS, SHARE_NOT_WORSE, TOLERANCE
from harness.runs.stats import LEVEL

VERDICTS = settling.__doc__ or ""
FINDINGS = verdicts.__doc__ or ""


def test_every_verdict_and_rule_is_explained() -> None:
    assert re.findall(r"^([a-z][a-z ]*?)  ", VERDICTS, re.MULTILINE) == [*Verdict]
    assert re.findall(r"^([a-z]+)  +", FINDINGS, re.MULTILINE) == [*checks.WORDS["rule"]]


def test_the_numbers_are_those_of_the_program() -> None:
    assert f"fewer than {LEAST_SEEDS} seeds" in VERDICTS
    assert f"more than {MATTERS:.0%}" in VERDICTS.replace("\n", " ").replace("  ", " ")
    assert f"by more than {MATTERS:.0%}" in FINDINGS
    assert f"{LEVEL:.0%}" in FINDINGS
    assert f"if not said {TOLERANCE:.0%} of the effect" in FINDINGS.replace("\n", " ")
    assert SHARE_NOT_WORSE == 0.9
    assert "at most a tenth of the settings" in FINDINGS
