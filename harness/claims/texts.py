"""Numbers as pages show them, and texts that have such numbers in them.

A text of a claims file names numbers instead of repeating them, so that they are those of the last
run:

    {claim-id}                   ours at the reference, as the page prints it, without interval
    {claim-id@a slower engine}   ours in a variation, by its name in words
    {claim-id@code}              what the authors' program gives
    {claim-id@at 3000}           ours at a single setting of a claim over several
    {claim-id@ceiling}           the most that any scheduler could reach
    {fact: says}                 ours of a fact or of a load; {fact: says@code}

What has not run (variations without `--sensitivity`, claims of other figures) becomes "not run".
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, isnan

from harness.claims.effects import ClaimError, EffectKind
from harness.claims.paper import AT, CEILING, CODE, REFERENCE, Claim, Judged, JudgedFact, Paper
from harness.claims.verdicts import Printed, Verdict

NONE = "-"
NOT_RUN = "not run"
PLACE = re.compile(r"\{([^{}]+)\}")
FACT = "fact: "


@dataclass(frozen=True, slots=True)
class Shown:
    """A number as pages print it, in parts: `takes 1.78 times as long [1.72, 1.83]`."""

    value: str
    unit: str = ""
    before: str = ""
    after: str = ""
    """The interval, or a remark in brackets, after a space."""

    @property
    def short(self) -> str:
        """Without the interval."""
        return f"{self.before}{self.value}{self.unit}"

    @property
    def text(self) -> str:
        """With the interval."""
        return self.short + self.after


def number(value: float, unit: str = "") -> str:
    """About three digits, without the unit; a share as a percentage where that is `%`."""
    scaled = value * 100 if unit.strip() == "%" else value
    size = abs(scaled)
    if 0 < size < 0.1:
        return f"{scaled:.2g}"
    few = 1 if unit.strip() == "%" and size >= 1 else 2
    return f"{scaled:z,.{few if size < 10 else 1 if size < 100 else 0}f}"


def printed(paper: Printed, words: str, unit: str, ceiling: Verdict | None = None) -> Shown:
    """What a paper prints, in words where it prints no number; beside it the ceiling."""
    values = paper if isinstance(paper, tuple) else (paper,)
    after = f" (ceiling {ours_of(ceiling, unit).short})" if ceiling else ""
    if words or isnan(values[0]):
        return Shown(words or NONE, after=after)
    scale = 100 if unit.strip() == "%" else 1
    texts = [f"{value * scale:.6g}" for value in values]
    if unit == "x":
        texts = [text if "." in text else f"{text}.0" for text in texts]
    return Shown("-".join(texts), unit, after=after)


def ours_of(found: Verdict, unit: str) -> Shown:
    """The number that a verdict rests on, in the claim's unit; the span of a range.

    What takes longer is not printed as a negative saving, differences of shares are in points.
    """
    if isnan(found.ours):
        return Shown(NONE)
    if found.kind is EffectKind.FACT:
        return Shown(f"{found.ours * found.seeds:.0f} of {found.seeds} seeds")
    if found.kind is EffectKind.RANGE and found.span:
        return Shown("-".join(dict.fromkeys(number(end, unit) for end in found.span)), unit)
    ours, ends, scale, before = found.ours, (found.low, found.high), unit, ""
    if found.kind is EffectKind.REDUCTION and ours < 0:
        ours, ends = 1 - ours, (1 - found.high, 1 - found.low)
        before, scale, unit = "takes ", "", " times as long"
    elif found.kind is EffectKind.DIFFERENCE:
        scale, unit = "%", " points"
    is_known = all(map(isfinite, ends))
    after = f" [{', '.join(number(end, scale) for end in ends)}]" if is_known else ""
    return Shown(number(ours, scale), unit, before, after)


def joined(parts: Sequence[Shown], *, short: bool = False) -> str:
    """The numbers of a row as one text: once where all agree, with a unit that all share once."""
    texts = [part.short if short else part.text for part in parts]
    if len(set(texts)) == 1:
        return texts[0]
    first, alike = parts[0], {(part.before, part.unit) for part in parts}
    if len(alike) == 1 and first.before:
        each = [part.value + ("" if short else part.after) for part in parts]
        return f"{first.before}{' / '.join(each)}{first.unit}"
    if len(alike) == 1 and (short or not any(part.after for part in parts)):
        return " / ".join(part.value for part in parts) + first.unit
    return " / ".join(texts)


def filled(
    text: str, paper: Paper, judged: Mapping[str, Judged], facts: Sequence[JudgedFact]
) -> str:
    """A text with its numbers. Raises ClaimError, which begins with the text, for unknown names."""

    def shown(place: re.Match[str]) -> str:
        try:
            if place[1].startswith(FACT):
                return _of_fact(place[1].removeprefix(FACT), paper, facts)
            return _of_claim(place[1], paper, judged)
        except ClaimError as error:
            raise ClaimError(f"{paper.name} {text[:40]!r}...: {error}") from None

    return PLACE.sub(shown, text)


def _of_claim(place: str, paper: Paper, judged: Mapping[str, Judged]) -> str:
    id, _, setting = place.partition("@")
    claim = paper.claims.get(id)
    if claim is None:
        raise ClaimError(f"there is no claim {id}")
    if claim.effect is None:
        raise ClaimError(f"{id} is not tested and has no number")
    found = judged[id].verdicts if id in judged else {}
    wrong_value = bool(found) and setting.startswith(AT) and setting not in found
    if wrong_value or not _may_have(claim, setting, paper):
        raise ClaimError(f"{id} has no setting {setting!r}")
    one = found.get(setting or REFERENCE)
    return ours_of(one, claim.unit).short if one else NOT_RUN


def _may_have(claim: Claim, setting: str, paper: Paper) -> bool:
    """Whether a claim may have a verdict of this setting; one without words is `key=value`."""
    special = {"": True, CODE: bool(claim.code), CEILING: claim.ceiling is not None}
    is_variation = setting in paper.variations.values() or "=" in setting
    return special.get(setting, setting.startswith(AT) or is_variation)


def _of_fact(place: str, paper: Paper, facts: Sequence[JudgedFact]) -> str:
    says, _, setting = place.partition("@")
    known = {fact.says: fact for fact in (*paper.facts, *paper.loads)}
    if says not in known or setting not in ("", CODE):
        raise ClaimError(f"there is no fact {place!r}")
    found = [it.code if setting else it.ours for it in facts if it.fact.says == says]
    one = next(iter(found), None)
    return ours_of(one, known[says].unit).short if one else NOT_RUN


def check_texts(paper: Paper) -> None:
    """Raise ClaimError for a name in a text that is not there, or of a variation that is taken."""
    for words in paper.variations.values():
        if words.startswith(AT) or words in (REFERENCE, CODE, CEILING):
            raise ClaimError(f"{paper.name}: a variation cannot be called {words!r}")
    texts = [text for claim in paper.claims.values() for text in (claim.why, claim.note)]
    texts += [fact.note for fact in (*paper.facts, *paper.loads)]
    for text in (*texts, *paper.causes.values(), *paper.controls.values()):
        filled(text, paper, {}, ())


def with_texts(
    paper: Paper, judged: Sequence[Judged], facts: Sequence[JudgedFact]
) -> tuple[list[Judged], list[JudgedFact]]:
    """Claims and facts with the numbers in their texts."""
    by_id = {one.claim.id: one for one in judged}
    fill = partial(filled, paper=paper, judged=by_id, facts=facts)
    claims = []
    for one in judged:
        claim = replace(one.claim, why=fill(one.claim.why), note=fill(one.claim.note))
        reason = fill(one.verdict.reason) if claim.untested else one.verdict.reason
        verdict = replace(one.verdict, reason=reason)
        claims.append(replace(one, claim=claim, verdict=verdict))
    noted = [replace(one, fact=replace(one.fact, note=fill(one.fact.note))) for one in facts]
    return claims, noted
