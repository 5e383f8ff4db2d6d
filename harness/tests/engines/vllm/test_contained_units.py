"""Units that run in real containers beside real vLLM."""

import docker
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.interface.policies import PrewarmPolicy, System
from harness.tests.support.docker_daemon import IMAGE
from harness.tests.support.prewarming import AtArrival, with_container
from harness.tests.support.serving import Everywhere, rule

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from harness.tests.support.real_engine import kept_engine  # noqa: E402


@pytest.mark.parametrize("prewarm", [None, AtArrival()], ids=["on demand", "ahead"])
def test_a_unit_runs_in_a_container(running: str, prewarm: PrewarmPolicy | None) -> None:
    """A call, a container that sleeps for 0.4 s, a call; one loaded ahead is not awaited."""
    recorder = Recorder()
    about = {"pool": "containers", "image": IMAGE, "url": running}
    fcfs = Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=16, tokens=256))
    system = System("test", fcfs, RoundRobin(), Everywhere(("m", (0,))), prewarm=prewarm)
    load = with_container([20, 1, 20], [500, 1, 3], seconds=0.4, max_context_tokens=1024)
    kept_engine(containers=about).run(load, system, recorder)
    assert recorder.apps is not None
    assert recorder.backends is not None
    assert recorder.units is not None
    assert recorder.counts["units_failed"] == 0
    assert recorder.apps["finished_s"].notna().all()
    contained = recorder.units[recorder.units["outside"]]
    ran_s = (contained["finished_s"] - contained["started_s"]).item()
    waited_s = recorder.backends["waited_s"].item()
    assert ran_s - waited_s > 0.4
    assert recorder.backends["found"].item() == ("cold" if prewarm is None else "warm")
    assert (waited_s > 0.1) is (prewarm is None)
    assert docker.DockerClient(base_url=running).containers.list(all=True) == []
