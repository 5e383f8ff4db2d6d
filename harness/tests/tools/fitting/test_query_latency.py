import pytest

from harness.config.paths import PROFILES
from harness.costs.model import ProfileCosts
from harness.interface.entities import ServiceId, Work
from harness.tests.support.configured import first_cell_of
from harness.tools.fitting.roofline_across import FOLDER as ACROSS
from harness.tools.fitting.shapes import (
    LATENCY_TOKENS,
    QUERY_LATENCY,
    SHORT_PROMPT_TOKENS,
    query_latency,
)
from harness.tools.fitting.stored import as_text


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

    assert row["prompt_ms"] == pytest.approx(1e3 * pass_s(LATENCY_TOKENS), rel=1e-5)
    seconds = pass_s(SHORT_PROMPT_TOKENS)
    for written in range(1, LATENCY_TOKENS):
        context = SHORT_PROMPT_TOKENS + written
        work = Work(decode_requests=1, context_tokens=context, longest_tokens=context)
        seconds += costs.iteration_s(service, 1, work)
    assert row["generate_ms"] == pytest.approx(1e3 * seconds, rel=1e-5)


def test_the_table_is_reproduced_byte_for_byte() -> None:
    kept = (PROFILES / "derived" / QUERY_LATENCY).read_text(encoding="utf-8")
    assert as_text(query_latency(PROFILES / ACROSS)) == kept
