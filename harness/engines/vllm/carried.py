"""Facts of a request as its sampling parameters carry them into an engine, and out again.

Requests of the project carry all that is known of them; those of a server carry what the client
has said of them in fields of its own (`vllm_xargs`), where anything unusable is left out with a
warning. The length to which an answer is cut is not among them.
"""

import logging
from collections.abc import Mapping
from typing import Any, TypeVar

from harness.interface.entities import AppId, Request, RequestId, ServiceId, TenantId

_log = logging.getLogger(__name__)
T = TypeVar("T")
_FACTS = [name for name in Request.__slots__ if name != "service"]


def extra_args_of(facts: Request, *, moved: bool = False) -> dict[str, object]:
    """Facts as sampling parameters carry them to the scheduler, and whether it `moved` here."""
    return {name: getattr(facts, name) for name in _FACTS} | {"moved": moved}


def carried(parameters: Any) -> Mapping[str, Any]:
    """What sampling parameters carry; nothing where there are none."""
    return (parameters.extra_args if parameters is not None else None) or {}


def own_facts(known: Mapping[str, Any], service: ServiceId) -> Request:
    """Facts as `extra_args_of` has written them. KeyError where it has not."""
    return Request(service=service, **{name: known[name] for name in _FACTS})


def seen_facts(
    known: Mapping[str, Any],
    service: ServiceId,
    *,
    number: RequestId,
    arrival_s: float,
    prompt_tokens: int,
    max_output_tokens: int,
) -> Request:
    """Facts that a server sees, with what the client has said: app, tenant, deadline_s, unit."""
    app = _field(known, "app", int)
    return Request(
        id=number,
        service=service,
        app=AppId(number if app is None else app),
        tenant=TenantId(_field(known, "tenant", str) or ""),
        arrival_s=arrival_s,
        prompt_tokens=prompt_tokens,
        max_output_tokens=max_output_tokens,
        deadline_s=_field(known, "deadline_s", float),
        unit=_field(known, "unit", str) or "",
    )


def predicted_tokens(known: Mapping[str, Any], most: int) -> int | None:
    """The output length that the client predicts, if it lies between 1 and `most`."""
    tokens = _field(known, "predicted_tokens", int)
    if tokens is not None and not 0 < tokens <= most:
        _log.warning("predicted_tokens=%d of a request is not 1 to %d: ignored", tokens, most)
        return None
    return tokens


def _is_usable(value: object) -> bool:
    """Whether a number can be counted with: finite, and an integer of 64 bits."""
    if isinstance(value, bool):
        return False
    return not isinstance(value, int | float) or -(2**63) <= value < 2**63


def _field(known: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """A field of the kind asked for; anything else is left out with a warning."""
    value: object = known.get(name)
    if kind is float and isinstance(value, int) and _is_usable(value):
        value = float(value)
    if value is None or (isinstance(value, kind) and _is_usable(value)):
        return value
    _log.warning("%s=%r of a request is not a %s and is ignored", name, value, kind.__name__)
    return None
