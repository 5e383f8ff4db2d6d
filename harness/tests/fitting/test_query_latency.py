import pytest

from harness.costs.model import ProfileCosts
from harness.fitting.query_latency import (
    FILE,
    MODELS,
    SHORT_PROMPT_TOKENS,
    TOKENS,
    generate_s,
    prompt_s,
    query_latency,
)
from harness.fitting.roofline_across import FOLDER as ACROSS
from harness.fitting.tables import as_text
from harness.interface.entities import ServiceId, Work
from harness.paths import PROFILES
from harness.tests.support.configured import first_cell_of


def v100_costs() -> ProfileCosts:
    """Costs of the machine that scenarios call so."""
    return first_cell_of("hardware=v100_16g_8", "workload=synthetic", "system=fixed").costs


@pytest.mark.parametrize("row", query_latency(PROFILES / ACROSS)["rows"], ids=lambda r: r["model"])
def test_it_is_what_a_run_on_that_hardware_would_cost(row: dict[str, float | str]) -> None:
    """The answer token by token, by the costs that engines read."""
    costs, service = v100_costs(), ServiceId(str(row["model"]))

    def pass_s(tokens: int) -> float:
        work = Work(
            prefill_requests=1,
            prefill_tokens=tokens,
            prefill_padded_tokens=tokens,
            prefill_attended=float(tokens) ** 2,
        )
        return costs.iteration_s(service, 1, work)

    assert row["prompt_ms"] == pytest.approx(1e3 * pass_s(TOKENS), rel=1e-5)
    seconds = pass_s(SHORT_PROMPT_TOKENS)
    for written in range(1, TOKENS):
        context = SHORT_PROMPT_TOKENS + written
        work = Work(decode_requests=1, context_tokens=context, longest_tokens=context)
        seconds += costs.iteration_s(service, 1, work)
    assert row["generate_ms"] == pytest.approx(1e3 * seconds, rel=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_the_short_prompt_hardly_matters(model: str) -> None:
    table = v100_costs().table(model, 1)
    short, longer = (generate_s(table, prompt, TOKENS) for prompt in (SHORT_PROMPT_TOKENS, 128))
    assert longer == pytest.approx(short, rel=0.01)
    assert prompt_s(table, TOKENS) < 0.02 * short


def test_the_table_is_reproduced_byte_for_byte() -> None:
    kept = (PROFILES / "derived" / FILE).read_text(encoding="utf-8")
    assert as_text(query_latency(PROFILES / ACROSS)) == kept
