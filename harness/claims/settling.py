"""The verdict of a claim: what its findings say over everything that the paper leaves open.

reproduced         the stated setting agrees with the paper, and so does every other value of what
                   the paper leaves open
depends            some of them agree and some do not; the choices that decide are named
direction only     none agrees, and at the stated setting who wins is right beyond noise and by
                   more than 2%
not reproduced     under no declared choice
not testable here  needs data or hardware that is not to be had; the claim says which
input              a number of the paper that is fed in
cannot be told     too noisy at the stated setting, or at other values while all the rest agrees,
                   or none of it does: more seeds would tell
not run            runs are missing: of the stated setting, of another value of what is open

Choices are changed one at a time, all else at the stated setting. A value that was run at fewer
settings or seeds counts if the stated one agrees as far at these alone as at all of its own; one
that agrees otherwise than the stated one counts if the figures that make it so, paired by seed, are
told from that one's. Where the settings themselves are a choice, every other choice, one of
settings too, is judged at each of their values as well, as far as it was run; what cannot be told
there is counted beside the verdict and does not turn it. Figures over fewer than 5 seeds, or with
requests unfinished, agree with nothing: they have the direction at most. A claim of several parts
is as good as the worst of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from harness.claims.findings import Agreement, Finding
from harness.claims.quantities import Setting, short

LEAST_SEEDS = 5


class Verdict(StrEnum):
    """What is said of a claim."""

    REPRODUCED = "reproduced"
    DEPENDS = "depends"
    DIRECTION = "direction only"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTABLE = "not testable here"
    INPUT = "input"
    UNTOLD = "cannot be told"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Specification:
    """A value for everything that a claim's paper leaves open.

    `varied` names the choice that differs from the stated setting, `over` one of settings that
    differs besides; empty where none does. `null` holds the choices of which one value is null.
    """

    choices: Setting
    varied: str = ""
    over: str = ""
    null: frozenset[str] = frozenset()

    def has_nothing(self, key: str) -> bool:
        """Whether null is a value of a choice, rather than the lack of one."""
        return key in self.null


STATED = Specification({})
"""Where nothing is left open."""


def gated(finding: Finding, *, unfinished: int) -> Finding:
    """The finding, less its agreement where too little stands behind it."""
    doubts = []
    if finding.seeds is not None and finding.seeds < LEAST_SEEDS:
        doubts.append(f"{finding.seeds} of the {LEAST_SEEDS} seeds that a verdict needs")
    if unfinished:
        doubts.append(f"{unfinished} requests unfinished")
    if not doubts:
        return finding
    agreement = finding.agreement
    if agreement is Agreement.AGREES:
        agreement = Agreement.DIRECTION
    return replace(
        finding, agreement=agreement, note="; ".join(filter(None, (finding.note, *doubts)))
    )


def worst(findings: Sequence[Finding]) -> Finding:
    """A claim of several parts agrees as far as its weakest part does."""
    order = list(Agreement)
    seeds = [found.seeds for found in findings if found.seeds is not None]
    return Finding(
        max((found.agreement for found in findings), key=order.index),
        "; ".join(found.ours for found in findings if found.ours),
        "; ".join(dict.fromkeys(found.note for found in findings if found.note)),
        findings[0].figure,
        min(seeds) if seeds else None,
        "; ".join(dict.fromkeys(found.basis for found in findings if found.basis)),
        sum(found.settings for found in findings),
    )


def settle(found: Sequence[tuple[Specification, Finding]]) -> tuple[Verdict, str]:
    """The verdict over all specifications, the stated setting first, and what decides it.

    Reproduced: the stated setting agrees, and so does every other. Depends: some agree and some do
    not; the choices that decide are named. Direction only: none agrees, and the stated setting has
    the direction right. Cannot be told: noise hides the stated setting, or others that could turn
    what all the rest says. Not run: the stated setting was not, or one of the others was not.
    """
    stated = found[0][1]
    if stated.agreement is Agreement.NOT_RUN:
        return Verdict.NOT_RUN, stated.note
    if missing := [spec for spec, one in found if one.agreement is Agreement.NOT_RUN]:
        named = ", ".join(sorted({short(spec.varied) for spec in missing}))
        return Verdict.NOT_RUN, f"{len(missing)} of {len(found)} settings, of {named}, were not run"
    if not stated.is_told:
        return Verdict.UNTOLD, stated.note
    told = [pair for pair in found if pair[1].is_told]
    holds = [one.agreement is Agreement.AGREES for _, one in told]
    count = f"holds in {sum(holds)} of {len(told)} settings" if len(found) > 1 else ""
    if len(told) < len(found):
        count += f" ({len(found) - len(told)} more from which nothing can be told)"
    if any(holds) and not all(holds):
        return Verdict.DEPENDS, "; ".join([count, *deciding(told)])
    if any(not one.is_told and not spec.over for spec, one in found):
        return Verdict.UNTOLD, count
    if all(holds):
        return Verdict.REPRODUCED, count
    right = stated.agreement is Agreement.DIRECTION
    return (Verdict.DIRECTION if right else Verdict.NOT_REPRODUCED), count


def deciding(found: Sequence[tuple[Specification, Finding]]) -> list[str]:
    """For each choice that turns agreement: its values that agree, and those that do not."""
    stated, first = found[0]
    texts = []
    alone = [(spec, one) for spec, one in found if not spec.over]
    for key in dict.fromkeys(spec.varied for spec, _ in alone if spec.varied):
        cases = [(stated.choices[key], first.agreement)]
        cases += [(spec.choices[key], one.agreement) for spec, one in alone if spec.varied == key]
        agree = [str(value) for value, agreement in cases if agreement is Agreement.AGREES]
        not_so = [str(value) for value, agreement in cases if agreement is not Agreement.AGREES]
        if agree and not_so:
            texts.append(f"{short(key)}: holds at {', '.join(agree)}, not at {', '.join(not_so)}")
    for agrees, words in ((True, "holds"), (False, "does not hold")):
        like = [one.choices for one, its in alone if (its.agreement is Agreement.AGREES) is agrees]
        for spec, one in found:
            if not spec.over or (one.agreement is Agreement.AGREES) is not agrees:
                continue
            apart = {key: spec.choices[key] for key in (spec.varied, spec.over)}
            # What one of the two does by itself has been said.
            if not any({**stated.choices, key: value} in like for key, value in apart.items()):
                named = (f"{short(key)} {value}" for key, value in apart.items())
                texts.append(f"{words} at {' with '.join(named)}")
    return texts


def specifications(
    opened: Mapping[str, Sequence[object]], ranges: Sequence[str] = ()
) -> list[Specification]:
    """The stated setting (the first value of every choice), then each other value on its own.

    `ranges` names the choices of settings; what else is open is then taken over those values too.
    """
    stated = {key: values[0] for key, values in opened.items()}
    null = frozenset(key for key, values in opened.items() if None in values)
    others = [
        Specification({**stated, key: value}, key, null=null)
        for key, values in opened.items()
        for value in values[1:]
    ]
    # Of two choices of settings each pair of values once.
    behind = {key: list(ranges)[:place] for place, key in enumerate(ranges)}
    pairs = [
        replace(spec, choices={**spec.choices, key: value}, over=key)
        for spec in others
        for key in ranges
        for value in opened[key][1:]
        if spec.varied not in ranges or spec.varied in behind[key]
    ]
    return [Specification(stated, null=null), *others, *pairs]
