"""Several real engines in one process."""

import pickle

import pytest

from baselines.fcfs import Fcfs
from harness.interface.entities import Request, Service, ServiceId
from harness.interface.policies import SchedulingPolicy
from harness.tests.support.policies import SteadyFcfs
from harness.tests.support.serving import a_group, rule, workload

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
    again = _group("m0", SteadyFcfs(rotates=False))
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
