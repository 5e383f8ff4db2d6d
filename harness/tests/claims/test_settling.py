"""From the findings of every specification to a verdict."""

import pytest

from harness.claims.findings import Agreement, Finding
from harness.claims.settling import Verdict, gated, settle, specifications, worst

AGREES, DIRECTION = Agreement.AGREES, Agreement.DIRECTION
DIFFERS, NOT_RUN = Agreement.DIFFERS, Agreement.NOT_RUN
UNTOLD = Agreement.UNTOLD
OPEN = {
    "config.policy.rule.max_num_seqs": (512, 256),
    "config.system.placement.keep": (False, True),
}


def settled(*agreements: Agreement) -> tuple[Verdict, str]:
    found = [Finding(agreement, "") for agreement in agreements]
    return settle(list(zip(specifications(OPEN), found, strict=True)))


def test_choices_vary_one_at_a_time_from_the_stated_setting() -> None:
    stated, seqs, keep = specifications(OPEN)
    assert list(stated.choices.values()) == [512, False]
    assert (list(seqs.choices.values()), seqs.varied) == ([256, False], next(iter(OPEN)))
    assert (list(keep.choices.values()), keep.varied) == ([512, True], list(OPEN)[1])
    assert [spec.choices for spec in specifications({})] == [{}]


@pytest.mark.parametrize(
    ("agreements", "verdict"),
    [
        ((AGREES, AGREES, AGREES), Verdict.REPRODUCED),
        ((AGREES, DIRECTION, AGREES), Verdict.DEPENDS),
        ((DIFFERS, AGREES, DIFFERS), Verdict.DEPENDS),
        ((DIRECTION, DIFFERS, DIRECTION), Verdict.DIRECTION),
        ((DIFFERS, DIRECTION, DIRECTION), Verdict.NOT_REPRODUCED),
        ((NOT_RUN, AGREES, AGREES), Verdict.NOT_RUN),
        ((AGREES, NOT_RUN, AGREES), Verdict.NOT_RUN),
        ((UNTOLD, AGREES, AGREES), Verdict.UNTOLD),
        ((AGREES, UNTOLD, AGREES), Verdict.UNTOLD),
        ((AGREES, UNTOLD, NOT_RUN), Verdict.NOT_RUN),
        ((AGREES, UNTOLD, DIFFERS), Verdict.DEPENDS),
        ((DIFFERS, UNTOLD, DIFFERS), Verdict.UNTOLD),
    ],
)
def test_verdicts(agreements: tuple[Agreement, ...], verdict: Verdict) -> None:
    assert settled(*agreements)[0] is verdict


def test_what_decides_is_named_with_its_values() -> None:
    note = settled(AGREES, DIFFERS, AGREES)[1]
    assert note == "holds in 2 of 3 settings; max_num_seqs: holds at 512, not at 256"
    assert (
        settled(DIFFERS, DIFFERS, AGREES)[1]
        == "holds in 1 of 3 settings; keep: holds at True, not at False"
    )


def test_settings_that_were_not_run_are_named() -> None:
    assert settled(AGREES, AGREES, NOT_RUN)[1] == "1 of 3 settings, of keep, were not run"


def test_few_seeds_and_unfinished_requests_cannot_agree() -> None:
    found = gated(Finding(AGREES, "", seeds=3), unfinished=2)
    assert found.agreement is DIRECTION
    assert found.note == "3 of the 5 seeds that a verdict needs; 2 requests unfinished"
    assert gated(Finding(DIFFERS, "", seeds=1), unfinished=0).agreement is DIFFERS
    assert gated(Finding(AGREES, "", seeds=5), unfinished=0).agreement is AGREES
    assert gated(Finding(AGREES, ""), unfinished=0).agreement is AGREES


def test_a_claim_of_parts_is_its_weakest() -> None:
    parts = [Finding(AGREES, "1", seeds=5), Finding(DIFFERS, "2", note="why", seeds=10)]
    found = worst(parts)
    assert (found.agreement, found.ours, found.note, found.seeds) == (DIFFERS, "1; 2", "why", 5)
