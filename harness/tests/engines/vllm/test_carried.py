"""Facts that travel with a request, and what clients may say wrongly."""

import logging
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines.vllm.carried import (
    extra_args_of,
    own_facts,
    predicted_tokens,
    seen_facts,
)
from harness.interface.entities import AppId, Request, RequestId, ServiceId, TenantId

CHAT = ServiceId("chat")

ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text("a7 '", max_size=5)
    | st.lists(st.integers(), max_size=2)
    | st.dictionaries(st.just("a"), st.integers(), max_size=1)
)


def a_request(deadline_s: float | None) -> Request:
    """Facts with every field filled."""
    return Request(
        RequestId(7),
        CHAT,
        AppId(3),
        TenantId("t"),
        1.25,
        20,
        30,
        deadline_s=deadline_s,
        unit="u",
        priority=2,
    )


@pytest.mark.parametrize("deadline_s", [None, 9.5])
def test_facts_arrive_as_they_were_sent(deadline_s: float | None) -> None:
    facts = a_request(deadline_s)
    assert own_facts(extra_args_of(facts), CHAT) == facts


def test_the_true_length_is_not_carried() -> None:
    assert "output_tokens" not in extra_args_of(a_request(None))


def seen(**said: object) -> Request:
    """A server's request of which the client says this."""
    return seen_facts(
        said, CHAT, number=RequestId(4), arrival_s=2.0, prompt_tokens=9, max_output_tokens=8
    )


def test_what_a_client_says_is_taken() -> None:
    facts = seen(tenant="gold", deadline_s=3, app=12, unit="plan")
    assert facts == Request(
        RequestId(4), CHAT, AppId(12), TenantId("gold"), 2.0, 9, 8, deadline_s=3.0, unit="plan"
    )
    assert isinstance(facts.deadline_s, float)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(["tenant", "deadline_s", "app", "unit", "id"]), ANYTHING))
def test_nothing_a_client_says_breaks_or_changes_what_the_server_knows(
    said: dict[str, object],
) -> None:
    facts = seen(**said)
    plain = seen()
    assert (facts.id, facts.arrival_s, facts.prompt_tokens, facts.max_output_tokens) == (
        plain.id,
        plain.arrival_s,
        plain.prompt_tokens,
        plain.max_output_tokens,
    )
    assert facts.deadline_s is None or math.isfinite(facts.deadline_s)
    assert -(2**63) <= facts.app < 2**63
    assert isinstance(facts.tenant, str)


@settings(max_examples=25, deadline=None)
@given(ANYTHING)
def test_a_prediction_lies_within_the_context_or_is_none(said: object) -> None:
    tokens = predicted_tokens({"predicted_tokens": said}, 100)
    assert tokens is None or 1 <= tokens <= 100
    assert predicted_tokens({"predicted_tokens": 60}, 100) == 60


def test_a_warning_names_the_field_and_its_value(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        seen(deadline_s="soon")
        predicted_tokens({"predicted_tokens": -2}, 100)
    assert "deadline_s='soon'" in caplog.text
    assert "predicted_tokens=-2" in caplog.text
