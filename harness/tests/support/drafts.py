"""Random groups, and random lines of a decision about them."""

from contextlib import suppress

from hypothesis import strategies as st

from harness.core.draft import Draft
from harness.core.fill import run_in_order
from harness.core.ledger_problems import problems
from harness.interface.decisions import Batch, PreemptionMode, Reservation
from harness.interface.entities import RequestId
from harness.interface.views import RequestView
from harness.tests.support.fakes import CHAT, CODE, FakeGroup, FakeRequest, FakeScene

PROMISES = st.one_of(
    st.builds(Reservation, st.integers(0, 80)),
    st.builds(
        Reservation, st.integers(0, 32), st.integers(0, 40), st.integers(1, 12).map(RequestId)
    ),
)


@st.composite
def scenes(draw: st.DrawFn, *, promises: bool = False) -> FakeGroup:
    """A group with up to 12 requests in sound states, some running."""
    services = (CHAT, CODE) if draw(st.booleans()) and promises else (CHAT,)
    scene = FakeScene(capacity_blocks=draw(st.integers(1, 24)), services=services)
    for _ in range(draw(st.integers(0, 12))):
        context = draw(st.integers(1, 60))
        held = draw(st.sampled_from([0, 0, context // 2, context]))
        generated = 1 if held == context else 0
        service = draw(st.sampled_from(services))
        request = scene.add(context, held, generated=generated, service=service)
        if problems(scene.view().kv):
            request.kv_tokens = 0
        elif promises:
            request.is_running = draw(st.integers(0, 4)) == 0
            if not held and not request.is_running:
                request.swapped_tokens = draw(st.sampled_from([0, 0, context // 2, context - 1]))
    view = scene.view()
    running = {name: 1 for name, r in scene.requests.items() if r.is_running}
    view.in_flight = (Batch(CHAT, running, 0.5),) if running else ()
    view.free_share = 0.5 if running else 1.0
    if promises:
        view.max_num_seqs = draw(st.integers(1, 8))
        view.max_num_batched_tokens = draw(st.integers(1, 120))
        view.free_host_bytes = draw(st.sampled_from([0, 20, 80, 1000]))
        promise_some(draw, view)
    return view


def promise_some(draw: st.DrawFn, view: FakeGroup) -> None:
    """Put promises that can be kept into the ledger."""
    for name, request in view.requests.items():
        promise = draw(st.one_of(st.none(), PROMISES))
        try:
            if promise and view.kv.try_reserve(name, promise):
                assert isinstance(request, FakeRequest)
                request.reservation = promise
        except ValueError:
            continue


def one_line(data: st.DataObject, draft: Draft, request: RequestView) -> None:
    """Try one random line of a decision; a refusal with a sentence is fine too."""
    move = data.draw(
        st.sampled_from(["run", "run", "reserve", "cancel", "preempt", "swap in", "batch", "fill"])
    )
    with suppress(ValueError):
        if move == "run":
            draft.try_run(request, data.draw(st.integers(-1, 70)))
        elif move == "reserve":
            draft.try_reserve(request, data.draw(PROMISES))
        elif move == "cancel":
            draft.cancel_reserve(request)
        elif move == "preempt":
            draft.preempt(request, data.draw(st.sampled_from(PreemptionMode)))
        elif move == "swap in":
            draft.try_swap_in(request)
        elif move == "batch":
            draft.open_batch(request.facts.service, data.draw(st.sampled_from([0.2, 0.5, 1.0])))
        else:
            order = data.draw(st.permutations(list(draft.view.requests.values())))
            how = data.draw(st.sampled_from(PreemptionMode))
            budget = data.draw(st.sampled_from([None, 7, 50]))
            run_in_order(draft, order, how=how, budget=budget)
