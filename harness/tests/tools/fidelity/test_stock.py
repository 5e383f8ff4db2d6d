"""vLLM by its own scheduler, on a workload of this project."""

from dataclasses import replace

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = pytest.mark.vllm

from baselines.round_robin import RoundRobin  # noqa: E402
from harness.engines.recorder import Recorder  # noqa: E402
from harness.interface.decisions import PriorityOrder  # noqa: E402
from harness.interface.entities import Service, ServiceId  # noqa: E402
from harness.interface.policies import System  # noqa: E402
from harness.tests.support.serving import Everywhere, rule, workload  # noqa: E402
from harness.tools.benchmarks.moving_policies import Ordered  # noqa: E402
from harness.tools.calibrate.model import engine  # noqa: E402
from harness.tools.fidelity.real_engine import figures  # noqa: E402
from harness.tools.fidelity.stock import StockVllm  # noqa: E402

POLICY = Ordered(PriorityOrder(None, rule()))
SYSTEM = System("stock", POLICY, RoundRobin(), Everywhere(("tiny", (0,))))


def stock(*, asynchronous: bool) -> StockVllm:
    return StockVllm.like(engine(400), asynchronous=asynchronous)


def test_several_services_are_refused() -> None:
    load = workload([4, 4], [2, 2], services=2)
    with pytest.raises(ValueError, match="one service whose requests wait for no answers"):
        stock(asynchronous=True).run(load, SYSTEM, Recorder())


@pytest.mark.slow
def test_all_requests_are_answered_and_timed() -> None:
    load = workload([40, 3, 70, 9], [5, 1, 8, 30], arrivals_s=[0.0, 0.0, 0.1, 0.2])
    load = replace(load, services=(Service(ServiceId("tiny"), 4096, 2048),))
    engine, recorder = stock(asynchronous=False), Recorder()
    engine.run(load, SYSTEM, recorder)
    (((settings,), group),) = engine.loaded.items()
    assert settings.scheduler is None
    group.stop()
    rows = recorder.requests
    assert rows["output_tokens"].tolist() == [5, 1, 8, 30]
    assert (rows["lag_s"] >= 0).all()
    assert (rows["first_token_s"] > rows["arrival_s"]).all()
    assert ((rows["finished_s"] > rows["first_token_s"]) == (rows["output_tokens"] > 1)).all()
    assert figures(rows)["makespan_s"] == rows["finished_s"].max()
    with pytest.raises(ValueError, match="not schedule asynchronously"):
        stock(asynchronous=True).run(load, SYSTEM, Recorder())
