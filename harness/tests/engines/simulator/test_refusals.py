"""What cannot be is refused with a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest

from baselines.fcfs import Fcfs
from harness.core.checks import IllegalDecision
from harness.engines.host_memory import HostMemory
from harness.interface.decisions import (
    Batch,
    Decision,
)
from harness.interface.entities import (
    GroupId,
    RequestId,
    ServiceId,
)
from harness.interface.policies import SchedulingPolicy
from harness.interface.views import ClusterView, GroupView
from harness.tests.support.policies import Scripted
from harness.tests.support.serving import (
    SERVICE,
    Everywhere,
    LinearCosts,
    rule,
    serve,
    workload,
)


def test_a_request_that_can_never_fit() -> None:
    """A prompt of 200 tokens, 12 blocks of 16 tokens: the sentence has the numbers."""
    with pytest.raises(ValueError, match=r"r0 can never be admitted: 12 KV blocks of 16 tokens"):
        serve(workload([200], [5]), costs=LinearCosts(blocks=12))
    with pytest.raises(ValueError, match=r"100 tokens a batch"):
        serve(workload([200], [5]), Fcfs(rule=rule(tokens=100)))


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("chunked_prefill", [True, False])
def test_a_request_that_outgrows_the_kv(fast: bool, chunked_prefill: bool) -> None:
    """A prompt of 30 tokens fits 3 blocks of 16, 40 tokens more do not: refused, not endless."""
    with pytest.raises((ValueError, IllegalDecision), match=r"r0|1 requests wait"):
        serve(
            workload([30], [40]),
            Fcfs(rule=rule(chunked_prefill=chunked_prefill)),
            costs=LinearCosts(blocks=3),
            fast_forward=fast,
        )


@dataclass(frozen=True)
class Cramped(LinearCosts):
    """Weights that fit two GPUs, not one."""

    def kv_blocks(self, service: ServiceId, tensor_parallel: int) -> int:
        """No blocks beside the weights on one GPU."""
        return 64 if tensor_parallel > 1 else 0


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([("m", (7,))], "a deployment uses GPU 7, the cluster has 2"),
        ([("m", (0,)), ("m", (0, 1))], "a deployment puts two groups on GPU 0"),
        ([("m", (1, 1))], "a deployment puts two groups on GPU 1"),
        ([("m", (1,))], "m does not fit 1 GPUs"),
        ([], r"requests wait for ever: {'m': 1} unfinished"),
        ([("other", (0, 1))], "a deployment serves other, which this run does not know"),
    ],
)
def test_impossible_deployments(groups: list[tuple[str, tuple[int, ...]]], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        serve(workload([9], [3]), None, Everywhere(*groups), costs=Cramped())


class Greedy(Scripted):
    """Computes more tokens than there are."""

    def schedule(self, view: GroupView) -> Decision:
        """One too many."""
        return Decision(launch=(Batch(SERVICE, {RequestId(0): 10}),))


class Forgetful(Scripted):
    """Wants to be woken in the past."""

    def schedule(self, view: GroupView) -> Decision:
        """Yesterday."""
        return Decision(wake_s=view.now_s - 1)


class AllAtOnce(Scripted):
    """Computes every prompt of the group in one batch."""

    def schedule(self, view: GroupView) -> Decision:
        """However many they are."""
        tokens = {name: it.context_tokens for name, it in view.requests.items()}
        return Decision(launch=(Batch(SERVICE, tokens),))


def test_a_batch_of_more_requests_than_costs_know() -> None:
    load, costs = workload([9] * 1025, [3] * 1025), LinearCosts(blocks=2000)
    with pytest.raises(ValueError, match=r"^a batch of 1025 requests, costs go up to 1024$"):
        serve(load, AllAtOnce(), costs=costs, max_num_seqs=2000, tokens=20_000)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (
            Scripted,
            r"^Scripted in m@0 at 1.000 s: 1 requests wait, nothing runs and no time to wake is "
            r"given; r0 has 9 tokens in 1 KV blocks \(1,600 bytes\); there are \d+ blocks "
            r"\([\d,]+ bytes\), \d+ of them free, and \d+ tokens a batch, "
            r"or fewer by the policy's own rule$",
        ),
        (Greedy, r"^Greedy in m@0 at 1.000 s: r0 would compute 10 tokens but misses only 9"),
        (Forgetful, r"^Forgetful in m@0 at 1.000 s: wake_s 0.0 s is not after now, 1.0 s"),
    ],
)
def test_an_illegal_decision_names_the_policy(
    policy: type[SchedulingPolicy], sentence: str
) -> None:
    with pytest.raises(IllegalDecision, match=sentence):
        serve(workload([9], [3]), policy())


def test_a_dispatch_to_a_group_of_another_service() -> None:
    class Wrong:
        reads_load: ClassVar[bool] = True

        def dispatch(
            self, requests: Sequence[int], service: ServiceId, view: ClusterView
        ) -> list[GroupId]:
            return [GroupId("m1@1") for _ in requests]

    load = workload([9, 9], [3, 3], services=2)
    with pytest.raises(ValueError, match="r0 of m0 was dispatched to m1@1, which does not"):
        serve(load, dispatch=Wrong())


@pytest.mark.parametrize(
    ("kv_bytes", "bytes_per_s", "sentence"),
    [
        (-1, 1e9, "hardware.host_kv_bytes is -1, it must be 0 or more"),
        (0, 0.0, "hardware.pcie_bytes_per_s is 0.0, it must be above 0"),
    ],
)
def test_host_memory_that_cannot_be_is_refused(
    kv_bytes: int, bytes_per_s: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        HostMemory(kv_bytes=kv_bytes, bytes_per_s=bytes_per_s)


def test_a_dispatch_of_fewer_than_all() -> None:
    class Few:
        reads_load: ClassVar[bool] = True

        def dispatch(
            self, requests: Sequence[int], service: ServiceId, view: ClusterView
        ) -> list[GroupId]:
            return [GroupId("m@0")]

    with pytest.raises(ValueError, match="Few names 1 groups for 2 requests"):
        serve(workload([9, 9], [3, 3]), dispatch=Few())
