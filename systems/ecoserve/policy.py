"""EcoServe: separate queues of prompts and generations, length groups, lent KV.

Paper      Shen and Sen, EcoServe, arXiv 2411.06364; sections below are its sections.
Idea       Prompts fill the forward size, generations the KV, by their predicted length. Generations
           of equal length start and end together; KV set aside and not used yet is lent.
Map        3.2.1 two queues -> `_place`, `_add_prompts`; 3.2.2 length groups -> `_place`,
           misprediction -> `_extend`; 3.3 -> `ordering.py`; 3.4 -> `_lend`; recall -> `_decode`
Constants  paper: `padding` .10/.15/.20 and `reserved_share` .012/.03/.05 (Alpaca, ShareGPT,
           BookCorpus), `buffer_share` .15/.15/.10, scale 2. Chosen by us: `target_tokens` (the
           paper's TFS "saturates GPU utilization"), `waiting_share` (KV that waiting generations
           may hold: nothing is said; as much as is reserved for prompts), `bucket_tokens` 1 (equal
           means equal), `more_tokens`, `smallest_tokens`
Differs    3.4 asks for 2m guests of half a host; host and two halves fill its space at a third of
           its length, and fig. 9b has one: `halves` 1. 9a hosts 16 in 32, 3.4 "less than": less.
           3.2.2 requeues an underpredicted request with prediction less generated, which is 0 or
           less by then: `more_tokens`. 3.2.2 has a prediction before its generation is placed; one
           that comes later replaces the mean of the answers so far: `_predict`. 3.4 moves an
           overdue guest to main memory, 2.3 and 3.2.2 prefer no offload: `overdue` is swap or
           recompute. 3.2.1 selects in sequence, 3.3 by binary search for a length close to what is
           left: `fill`. 4 makes deadlines from the true length: here from the prediction. Order
           follows the time when a request comes, ends, overruns, is preempted or has computed its
           prompt, not in every iteration
Checked    systems/tests/test_ecoserve.py::test_loans_by_hand
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from math import ceil, floor
from typing import ClassVar

from harness.core.draft import Draft
from harness.core.fill import is_decode
from harness.interface.decisions import Decision, PreemptionMode, Reservation
from harness.interface.entities import GroupId, RequestId
from harness.interface.events import Arrived, Event, Finished, Moved, Overran, Predicted
from harness.interface.policies import Capability
from harness.interface.views import GroupView, RequestView, missing_tokens
from systems.ecoserve.ordering import PromptQueue, Queues, Ranking, refuse_settings

_SIZES = (2, 4, 12)
"""Sizes of length groups that are counted: figure 2."""
FILLS = ("order", "best")
OVERDUE = ("recompute", "swap")
HALVES = (1, 2)
COUNTED = (
    *("groups", "placed", "loans", "recalled", "overruns", "served_from_reserve", "preempted"),
    *("answers", "answered_tokens", "provided_tokens", "over_tokens", "short_tokens"),
    *(f"{kind}_of_{n}" for n in _SIZES for kind in ("groups", "requests_in_groups")),
)
"""Names of `counts`."""

_Waiting = list[tuple[int, float, RequestId, RequestView]]
"""Length, deadline, id, request; ascending."""


class EcoServe:
    """Scheduling policy: D, SD, SDO or all of EcoServe."""

    subscribes: ClassVar[frozenset[type[Event]]] = frozenset(
        {Arrived, Moved, Predicted, Finished, Overran}
    )

    def __init__(
        self,
        *,
        synced: bool,
        ranking: Ranking | None,
        pipelined: bool,
        target_tokens: int,
        padding: float,
        reserved_share: float,
        waiting_share: float,
        bucket_tokens: int,
        fill: str,
        more_tokens: int,
        buffer_share: float,
        smallest_tokens: int,
        halves: int,
        overdue: str,
    ) -> None:
        """Without `synced`, `ranking`, `pipelined`: D; then SD, SDO, all. Header: the choices.

        Raises ValueError for a number out of its range.
        """
        shares = {"reserved_share": reserved_share, "waiting_share": waiting_share}
        counts = {"target_tokens": target_tokens, "bucket_tokens": bucket_tokens}
        refuse_settings(
            shares | {"buffer_share": buffer_share},
            counts | {"more_tokens": more_tokens, "smallest_tokens": smallest_tokens},
            {"fill": (fill, FILLS), "overdue": (overdue, OVERDUE), "halves": (halves, HALVES)},
            padding=padding,
        )
        self._synced, self._ranking, self._pipelined = synced, ranking, pipelined
        self._target_tokens, self._padding = target_tokens, padding
        self._reserved_share, self._waiting_share = reserved_share, waiting_share
        self._bucket_tokens, self._more_tokens = bucket_tokens, more_tokens
        self._buffer_share, self._smallest_tokens = buffer_share, smallest_tokens
        self._halves, self._best_fit = halves, fill == "best"
        self._overdue = PreemptionMode(overdue)
        self._queues: dict[GroupId, Queues] = {}
        self._provided: dict[RequestId, int] = {}  # tokens for a whole answer, when placed first
        self._counts = Counter(dict.fromkeys(COUNTED, 0))

    @property
    def requires(self) -> frozenset[Capability]:
        """Predictions, promises of KV; host memory where overdue guests are moved there."""
        swaps = self._pipelined and self._overdue is PreemptionMode.SWAP
        needs = {Capability.PREDICTIONS, Capability.PROMISED_KV}
        return frozenset(needs | ({Capability.SWAP} if swaps else set()))

    def counts(self) -> Mapping[str, int]:
        """Length groups by size, requests placed, loans, recalls, overruns, preemptions.

        Also answers and their tokens; of those that were placed the tokens set aside for whole
        answers, those beyond the true ones, and those that answers lacked.
        """
        return self._counts

    def observe(self, event: Event) -> None:
        """Keep the queues; they are sorted when a replica is asked about."""
        if isinstance(event, Arrived | Moved):
            if isinstance(event, Moved):
                self._forget(event.request.id)
            queues = self._of(event.group)
            queues.unsorted[event.request.id], queues.changed = None, True
        elif isinstance(event, Finished):
            self._learn_answer(event)
            self._forget(event.request.id)
        elif isinstance(event, Overran):
            queues = self._of(event.group)
            if event.request in queues.running:
                queues.overran.add(event.request)
                queues.changed = True
        elif isinstance(event, Predicted):
            for queues in self._queues.values():
                queues.learn(event.request)

    def schedule(self, view: GroupView) -> Decision:
        """Running generations, then waiting ones while KV lasts, their guests, and prompts."""
        queues, draft = self._of(view.group.id), Draft(view)
        preempted = self._counts["preempted"]
        (service,) = view.services
        capacity = view.kv.capacity_blocks(service)
        reserved = floor(self._reserved_share * capacity)
        if queues.changed:
            self._sort(queues, view)
            self._predict(draft, queues)
            self._extend(draft, queues, reserved)
        self._decode(draft, queues)
        preempts = self._counts["preempted"] > preempted
        if not (queues.changed or preempts or draft.is_empty):
            return draft.decision(steady=True)
        if queues.waiting and (queues.may_refill or not queues.running):
            self._place(draft, queues, reserved)
        if draft.is_empty:
            self._force(draft, queues)
        prompts = self._add_prompts(draft, queues, floor(self._waiting_share * capacity))
        # Prompts become generations, and a preempted request may run from the next decision on.
        queues.changed = prompts or self._counts["preempted"] > preempted
        return draft.decision(steady=not queues.changed)

    def _of(self, group: GroupId) -> Queues:
        if group not in self._queues:
            self._queues[group] = Queues(PromptQueue(self._ranking))
        return self._queues[group]

    def _learn_answer(self, event: Finished) -> None:
        self._counts["answers"] += 1
        self._counts["answered_tokens"] += event.output_tokens
        if (provided := self._provided.pop(event.request.id, None)) is not None:
            self._counts["provided_tokens"] += provided
            self._counts["over_tokens"] += max(0, provided - event.output_tokens)
            self._counts["short_tokens"] += max(0, event.output_tokens - provided)

    def _start(self, queues: Queues, request: RequestView, length: int, depth: int) -> None:
        self._provided.setdefault(request.facts.id, request.generated_tokens + length)
        queues.start(request.facts.id, depth)

    def _forget(self, name: RequestId) -> None:
        for queues in self._queues.values():
            queues.forget(name)

    def _sort(self, queues: Queues, view: GroupView) -> None:
        """Queue prompts that have come, and generations of the prompts that have run."""
        requests = view.requests
        for name in queues.unsorted:
            if (request := requests.get(name)) is not None:
                self._queue_prompt(queues, view, request)
        queues.unsorted.clear()
        for name in [n for n in queues.begun if is_decode(requests[n])]:
            del queues.begun[name]
            queues.waiting[name] = None

    def _queue_prompt(self, queues: Queues, view: GroupView, request: RequestView) -> None:
        """ValueError where no replica can ever hold what the request is to be allocated."""
        facts, kv = request.facts, view.kv
        answer = self._answer_tokens(request)
        limit = view.services[facts.service].max_context_tokens
        predicted = 0.0 if request.predicted is None else request.predicted.mean_tokens
        if predicted > limit - facts.prompt_tokens:
            raise ValueError(
                f"r{facts.id} is predicted {predicted:g} tokens after a prompt of"
                f" {facts.prompt_tokens}, beyond its context of {limit}"
            )
        wanted = kv.blocks(facts.prompt_tokens + answer)
        capacity = kv.capacity_blocks(facts.service)
        if wanted > capacity:
            raise ValueError(
                f"r{facts.id} needs {wanted} blocks of KV for {facts.prompt_tokens} prompt and"
                f" {answer} predicted tokens, {capacity} are there"
            )
        queues.prompts.push(facts.id, request.context_tokens, self._deadline_s(request), view.now_s)

    def _answer_tokens(self, request: RequestView) -> int:
        """The predicted answer, padded, within the request's limit.

        Before it is predicted the mean of the answers so far, at least `more_tokens`.
        """
        if request.predicted is None:
            mean = self._counts["answered_tokens"] / max(1, self._counts["answers"])
            answer = max(self._more_tokens, ceil(mean))
        else:
            answer = max(1, ceil((1 + self._padding) * request.predicted.mean_tokens))
        return min(request.facts.max_output_tokens, answer)

    def _deadline_s(self, request: RequestView) -> float:
        if self._ranking is None:
            return 0.0
        predicted = request.predicted
        length = self._answer_tokens(request) if predicted is None else predicted.mean_tokens
        return self._ranking.deadline_s(request.facts.arrival_s, ceil(length))

    def _left_tokens(self, queues: Queues, request: RequestView) -> int:
        """Tokens still to come, in whole buckets."""
        answer = queues.lengthened.get(request.facts.id) or self._answer_tokens(request)
        left = max(1, answer - request.generated_tokens)
        limit = request.facts.max_output_tokens - request.generated_tokens
        return max(1, min(-(-left // self._bucket_tokens) * self._bucket_tokens, limit))

    def _predict(self, draft: Draft, queues: Queues) -> None:
        """Set KV aside anew for generations that ran before they were predicted.

        A guest keeps its loan, and a promise that cannot grow stays as it is: what is too short
        overruns.
        """
        for name in sorted(queues.predicted):
            request = draft.view.requests[name]
            if name in queues.running and not queues.running[name].depth:
                answer = request.context_tokens + self._left_tokens(queues, request)
                if draft.try_reserve(request, Reservation(answer)):
                    queues.overran.discard(name)
        queues.predicted.clear()

    def _extend(self, draft: Draft, queues: Queues, reserved: int) -> None:
        """A generation that has outgrown its promise gets reserved KV, or is queued again."""
        for name in sorted(queues.overran):
            request = draft.view.requests[name]
            self._counts["overruns"] += 1
            queues.lengthened[name] = request.generated_tokens + self._more_tokens
            promise = Reservation(request.context_tokens + self._more_tokens)
            if draft.try_reserve(request, promise, spare_blocks=reserved):
                continue
            if draft.try_reserve(request, promise):
                self._counts["served_from_reserve"] += 1
            else:
                queues.leave(name)
                queues.waiting[name] = None
        queues.overran.clear()

    def _decode(self, draft: Draft, queues: Queues) -> None:
        """Run the placed generations; guests give way to a host that needs its space."""
        requests, running = draft.view.requests, queues.running
        if draft.try_run_all([requests[n] for n in running], draft.view.max_num_batched_tokens):
            return
        for name in sorted(running, key=lambda n: running[n].depth):
            request = requests[name]
            while name in running and not draft.try_run(request, 1):
                guests = [g for g in draft.guests(request) if draft.can_preempt(requests[g])]
                if not guests and running[name].depth == 0:
                    break
                depth = {g: running[g].depth if g in running else 99 for g in guests}
                recalled = max(guests, key=lambda g: (depth[g], g)) if guests else name
                self._recall(draft, queues, requests[recalled])

    def _recall(self, draft: Draft, queues: Queues, guest: RequestView) -> None:
        self._counts["recalled"] += 1
        if guest.facts.id in queues.running:
            queues.leave(guest.facts.id)
            queues.waiting[guest.facts.id] = None
        self._preempt(draft, queues, guest, swap=self._overdue is PreemptionMode.SWAP)

    def _preempt(
        self, draft: Draft, queues: Queues, request: RequestView, *, swap: bool = False
    ) -> None:
        """Free the KV of a waiting request; without host memory it is a prompt again."""
        self._counts["preempted"] += 1
        if swap and draft.can_swap_out(request):
            draft.preempt(request, PreemptionMode.SWAP)
            return
        draft.preempt(request)
        name = request.facts.id
        queues.waiting.pop(name, None)
        queues.begun.pop(name, None)
        queues.prompts.push(
            name, request.context_tokens, self._deadline_s(request), draft.view.now_s
        )

    def _in_order(self, draft: Draft, queues: Queues) -> list[tuple[int, RequestView]]:
        """Waiting generations with their lengths, in order."""
        requests, now_s = draft.view.requests, draft.view.now_s
        views = (requests[name] for name in sorted(queues.waiting))
        found = [(self._left_tokens(queues, r), r) for r in views if not draft.preempts(r)]
        ranking = self._ranking
        if ranking is not None:
            found.sort(
                key=lambda one: (
                    ranking.slack_range(self._deadline_s(one[1]), now_s),
                    *ranking.within(one[1].kv_tokens, one[0]),
                )
            )
        return found

    def _place(self, draft: Draft, queues: Queues, reserved: int) -> None:
        """Length groups in order until the KV is full; then guests of the placed generations."""
        groups: dict[int, list[tuple[int, RequestView]]] = {}
        requests, blocks = draft.view.requests, draft.view.kv.blocks
        names = (*queues.waiting, *queues.begun)
        queues.held_blocks = sum([blocks(requests[name].kv_tokens) for name in names])
        for at, (length, request) in enumerate(self._in_order(draft, queues)):
            groups.setdefault(length if self._synced else at, []).append((length, request))
        hosts: list[tuple[int, RequestView]] = []
        rest: list[tuple[int, RequestView]] = []
        for members in groups.values():
            queues.groups += 1
            before = len(hosts)
            for length, request in members:
                if not rest and self._try_place(draft, queues, request, length, reserved):
                    hosts.append((length, request))
                else:
                    rest.append((length, request))
            self._count_group(len(hosts) - before)
        queues.may_refill = not rest
        if rest and self._best_fit:
            for length, request in sorted(rest, key=lambda one: -one[0]):
                queues.groups += 1
                if self._try_place(draft, queues, request, length, reserved):
                    hosts.append((length, request))
                    self._count_group(1)
        self._counts["placed"] += len(hosts)
        if self._pipelined:
            left = [one for one in rest if one[1].facts.id in queues.waiting]
            waiting = sorted((n, self._deadline_s(r), r.facts.id, r) for n, r in left)
            for length, host in hosts:
                self._lend(draft, queues, host, length, waiting)

    def _count_group(self, size: int) -> None:
        self._counts["groups"] += size > 0
        for least in _SIZES:
            if size >= least:
                self._counts[f"groups_of_{least}"] += 1
                self._counts[f"requests_in_groups_of_{least}"] += size

    def _try_place(
        self, draft: Draft, queues: Queues, request: RequestView, length: int, reserved: int
    ) -> bool:
        """Run a generation on KV of its own, which leaves the reserve to prompts.

        What other waiting generations hold lies in the reserve.
        """
        if draft.requests_left <= 0:
            return False
        own = draft.kv.blocks(request.kv_tokens)
        spare = max(0, reserved - (queues.held_blocks - own))
        promise = Reservation(request.context_tokens + length)
        if not draft.try_reserve(request, promise, spare_blocks=spare):
            return False
        if not draft.try_run(request, 1):
            draft.cancel_reserve(request)
            return False
        queues.held_blocks -= own
        self._start(queues, request, length, 0)
        return True

    def _lend(
        self, draft: Draft, queues: Queues, host: RequestView, space: int, waiting: _Waiting
    ) -> None:
        """Place guests in the `space` tokens that a host is about to fill, and guests of those."""
        while space // 2 >= self._smallest_tokens and waiting:
            for _ in range(self._halves):
                most = space // 2 - int(self._buffer_share * space / 2)
                found = self._take_guest(draft, queues, host, most, waiting)
                if found is None:
                    break
                length, guest = found
                self._lend(draft, queues, guest, length, waiting)
            space //= 2

    def _take_guest(
        self, draft: Draft, queues: Queues, host: RequestView, most: int, waiting: _Waiting
    ) -> tuple[int, RequestView] | None:
        """The longest that ends before `most` tokens, of the loosest deadline, and fits."""
        kv = draft.view.kv
        for at in range(bisect_left(waiting, most, key=lambda one: one[0]) - 1, -1, -1):
            length, _, _, guest = waiting[at]
            if length < self._smallest_tokens // 2:
                return None
            own = kv.blocks(guest.kv_tokens) * kv.block_tokens
            loan = guest.context_tokens + length - own
            if loan <= 0 or not draft.try_reserve(guest, Reservation(own, loan, host.facts.id)):
                continue
            if not draft.try_run(guest, 1):
                draft.cancel_reserve(guest)
                continue
            del waiting[at]
            queues.groups += 1
            self._start(queues, guest, length, queues.running[host.facts.id].depth + 1)
            self._counts["loans"] += 1
            return length, guest
        return None

    def _force(self, draft: Draft, queues: Queues) -> None:
        """Where nothing can run, the last in order give up their KV until the first fits."""
        waiting = self._in_order(draft, queues)
        while waiting:
            length, first = waiting[0]
            queues.groups += 1
            if self._try_place(draft, queues, first, length, 0):
                self._counts["placed"] += 1
                self._count_group(1)
                return
            _, last = waiting.pop()
            if not waiting or not draft.can_preempt(last):
                return
            self._preempt(draft, queues, last)

    def _add_prompts(self, draft: Draft, queues: Queues, most_blocks: int) -> bool:
        """Fill the forward size with prompts; whether any runs."""
        requests, kv = draft.view.requests, draft.view.kv
        blocks, block_tokens = kv.blocks, kv.block_tokens
        left = self._target_tokens - (draft.view.max_num_seqs - draft.requests_left)
        any_runs = False
        for name in queues.begun:
            tokens = min(missing_tokens(requests[name]), left)
            if tokens > 0 and draft.try_run(requests[name], tokens):
                left, any_runs = left - tokens, True
        held: int | None = None
        while left > 0 and draft.requests_left > 0:
            first = queues.prompts.first(draft.view.now_s)
            if first is None:
                break
            name, context = first
            if held is None:
                names = (*queues.waiting, *queues.begun)
                held = sum([-(-requests[n].context_tokens // block_tokens) for n in names])
            if held and held + blocks(context) > most_blocks:
                break
            request, tokens = requests[name], min(context, left)
            if draft.preempts(request) or not draft.try_reserve(request, Reservation(context)):
                break
            if not draft.try_run(request, tokens):
                draft.cancel_reserve(request)
                break
            queues.prompts.remove(name)
            queues.begun[name] = None
            held, left, any_runs = held + blocks(context), left - tokens, True
        return any_runs
