"""Several real engines in one process, and policies that several of them share."""

import pickle
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.interface.decisions import Decision
from harness.interface.draft import Draft
from harness.interface.entities import Request, Service, ServiceId
from harness.interface.events import Event, Finished, Moved
from harness.interface.filling import continuous_batch
from harness.interface.policies import Capability, SchedulingPolicy, System
from harness.interface.views import GroupView
from harness.tests.support.serving import Everywhere, a_group, rule, workload

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from harness.engines.vllm.group import Submission, VllmGroup, new_engines  # noqa: E402
from harness.tests.support.real_engine import engine  # noqa: E402


def _group(name: str, policy: SchedulingPolicy) -> VllmGroup:
    service, group = Service(ServiceId(name), 100, 256), a_group(name, 0)
    settings = engine(models={name: "tiny"}).settings([service], group)
    served = VllmGroup(new_engines(settings), True, settings)
    served.use(policy, group=group, services=[service])
    return served


def _submission(request: Request) -> Submission:
    return Submission(request, [5] * request.prompt_tokens, 6)


def test_an_engine_that_stops_leaves_the_others_alone() -> None:
    """Its service is served by another one then, whose report goes without the group.

    A report is pickled while the engine goes on: what a decision was drafted on may be changing.
    """
    policy = Fcfs(rule=rule(chunked_prefill=True, tokens=64))
    first, second = (_group(name, policy) for name in ("m0", "m1"))
    facts = [workload([9, 9], [6, 6], services=2).facts(request) for request in range(2)]
    second.submit([_submission(facts[1])])
    second.step()
    first.stop()
    while second.has_work:
        second.step()
    assert len(second.report().answers[facts[1].id]) == 6
    again = _group("m0", AfterTheOther())
    again.submit([_submission(facts[0])])
    while again.has_work:
        again.step()
    report = again.report()
    assert len(report.answers[facts[0].id]) == 6
    assert report.iterations
    assert all(step.decision.launch for step in report.iterations)
    assert b"ServedGroup" not in pickle.dumps(report)
    for group in (second, again):
        group.stop()


@dataclass
class AfterTheOther:
    """The second service runs when an answer of the first is known, of which events tell alone."""

    requires: ClassVar[frozenset[Capability]] = frozenset()
    subscribes: ClassVar[frozenset[type[Event]]] = frozenset({Finished, Moved})
    heard: list[Event] = field(default_factory=list)
    begun: int = 0

    def observe(self, event: Event) -> None:
        """Keep it."""
        self.heard.append(event)

    def schedule(self, view: GroupView) -> Decision:
        """All, or nothing yet."""
        answered = {str(e.request.service) for e in self.heard if isinstance(e, Finished)}
        if "m1" in view.group.services and "m0" not in answered:
            return Decision(wake_s=view.now_s + 0.05)
        draft = Draft(view)
        self.begun += sum(not request.kv_tokens for request in view.requests.values())
        continuous_batch(draft, list(view.requests.values()))
        return draft.decision()

    def counts(self) -> dict[str, int]:
        """Requests that it has started."""
        return {"begun": self.begun}


def test_a_policy_knows_what_has_happened_in_all_groups() -> None:
    recorder = Recorder()
    placement = Everywhere(("m0", (0,)), ("m1", (1,)))
    engine(ray=True, horizon_s=60.0).run(
        workload([9, 9], [6, 6], services=2, max_context_tokens=256),
        System("test", AfterTheOther(), RoundRobin(), placement),
        recorder,
    )
    assert recorder.cut_off_s is None
    first_s, second_s = recorder.requests["finished_s"]
    assert first_s < recorder.requests["started_s"][1] < second_s
    assert recorder.counts == {"begun": 2}
