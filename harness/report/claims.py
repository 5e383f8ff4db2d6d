"""Generated parts of the pages that come from claims and their verdicts: one function each."""

from collections import Counter
from collections.abc import Mapping
from inspect import getdoc
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.claims import checks, reading, settling, verdicts
from harness.claims.command import verdict_file
from harness.claims.findings import Agreement
from harness.claims.quantities import short
from harness.claims.settling import Verdict
from harness.report.markdown import read_json, table

Claim = Mapping[str, Any]


def _verdicts(root: Path, paper: str, variant: str = "paper") -> list[Claim]:
    path = root / "results" / "claims" / verdict_file(paper, variant)
    found: list[Claim] = read_json(path)
    return found


def counts_part(root: Path) -> str:
    """How many claims of each paper have which verdict; none where there is none."""
    paths = sorted((root / "results" / "claims").glob(f"*{verdict_file('', 'paper')}"))
    rows = []
    for paper in (path.name.removesuffix(verdict_file("", "paper")) for path in paths):
        found = Counter(claim["verdict"] for claim in _verdicts(root, paper))
        name = f"[{paper}](results/pages/claims-{paper}.md)"
        rows.append((name, *(found[str(verdict)] or "" for verdict in Verdict), found.total()))
    return table(("paper", *Verdict, "claims"), rows)


def claims_part(root: Path, paper: str) -> str:
    """Every claim that was judged: the paper's figure, ours, verdict and note."""
    found = _verdicts(root, paper)
    rest = sum(claim["verdict"] == Verdict.NOT_RUN for claim in found)
    rows = [_row(claim) for claim in found if claim["verdict"] != Verdict.NOT_RUN]
    header = ("claim", "paper", "ours [95% over seeds]", "verdict", "settings that agree", "note")
    return table(header, rows) + (f"\n\nNot run: {rest}." if rest else "")


def _row(claim: Claim) -> tuple[str, ...]:
    paper = claim["paper"]
    stated = " to ".join(map(str, paper)) if isinstance(paper, list) else str(paper)
    tried = claim.get("specifications", ())
    agree = sum(one["agreement"] == Agreement.AGREES for one in tried)
    share = f"{agree} of {len(tried)}" if tried else ""
    verdict = f"**{claim['verdict']}**"
    return (f"`{claim['id']}`", stated, claim["ours"], verdict, share, claim["note"])


def open_part(root: Path, paper: str) -> str:
    """What the paper leaves open, claim by claim, and how each value comes out; with the curves."""
    rows = [
        (f"`{claim['id']}`", f"`{choice['key']}`", _outcomes(claim, choice), choice["source"])
        for claim in _verdicts(root, paper)
        for choice in claim.get("open", ())
    ]
    curves = root / "results" / "figures" / f"{paper}_specifications.png"
    drawn = f"![Every claim over what is open](../figures/{curves.name})\n\n"
    if not rows:
        return "No claim has been judged over it yet."
    header = ("claim", "left open", "values, the stated setting's first", "source")
    return (drawn if curves.is_file() else "") + table(header, rows)


def _outcomes(claim: Claim, choice: Claim) -> str:
    """Every value of a choice with what it leads to, all else as in the stated setting.

    In brackets what it leads to at further values of a choice of settings.
    """
    key, texts = choice["key"], []
    for one in claim["specifications"]:
        if one["varied"] in ("", key) and not one["over"]:
            value = one["choices"][key]
            pairs = [
                f"at {short(pair['over'])} {pair['choices'][pair['over']]} {pair['agreement']}"
                for pair in claim["specifications"]
                if pair["over"] and pair["varied"] == key and pair["choices"][key] == value
            ]
            beside = f" ({', '.join(pairs)})" if pairs else ""
            texts.append(f"{value}: {one['agreement']}{beside}")
    return "; ".join(texts)


def basis_part(root: Path, paper: str) -> str:
    """What the seconds of claims rest on: profiles, their errors, and what was not measured."""
    claims: dict[str, list[str]] = {}
    for claim in _verdicts(root, paper):
        if claim["basis"]:
            claims.setdefault(claim["basis"], []).append(
                f"`{claim['id'].removeprefix(paper + '.')}`"
            )
    rows = [(", ".join(named), basis) for basis, named in claims.items()]
    return table(("claims", "seconds of the stated setting"), rows)


RULES: tuple[tuple[str, ModuleType], ...] = (
    ("Verdicts", settling),
    ("Findings", verdicts),
    ("What a claim says", reading),
    ("How it is tested", checks),
)
"""The files that say when a claim holds, and what."""


def rules_part(_: Path) -> str:
    """When a claim holds, as the files that decide it say of themselves."""
    return "\n\n".join(
        f"## {title}\n\n`{module.__name__.replace('.', '/')}.py`\n\n```text\n{getdoc(module)}\n```"
        for title, module in RULES
    )


def verdict_changes_part(root: Path, paper: str) -> str:
    """Claims whose verdict differs between the paper and its authors' program."""
    rows = []
    there = {claim["id"]: claim for claim in _verdicts(root, paper)}
    for code in _verdicts(root, paper, "code"):
        own = there[code["id"]]
        verdicts = own["verdict"], code["verdict"]
        if Verdict.NOT_RUN not in verdicts and code["ours"] != own["ours"]:
            differs = "yes" if code["verdict"] != own["verdict"] else ""
            rows.append((f"`{code['id']}`", own["ours"], code["ours"], *verdicts, differs))
    header = ("claim", "paper's method", "its program", "verdict", "verdict", "changes")
    return table(header, rows)
