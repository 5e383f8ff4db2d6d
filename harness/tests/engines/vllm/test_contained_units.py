"""Units that run in real containers beside real vLLM."""

from collections.abc import Iterator
from dataclasses import replace

import docker
import pytest

from baselines.fcfs import Fcfs
from baselines.round_robin import RoundRobin
from harness.engines.recorder import Recorder
from harness.interface.policies import PrewarmPolicy, System
from harness.tests.support.docker_daemon import IMAGE, Daemon, NoDaemonError, daemon, unpacked
from harness.tests.support.prewarming import AtArrival, with_container
from harness.tests.support.serving import Everywhere, rule

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]

from harness.tests.support.real_engine import engine  # noqa: E402


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A docker daemon."""
    try:
        with daemon(unpacked(tmp_path_factory.mktemp("docker"))) as found:
            yield found
    except NoDaemonError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("prewarm", [None, AtArrival()], ids=["on demand", "ahead"])
def test_a_unit_runs_in_a_container(running: Daemon, prewarm: PrewarmPolicy | None) -> None:
    """A call, a container that sleeps for 0.4 s, a call; loaded ahead it has not to be awaited."""
    recorder = Recorder()
    about = {"pool": "containers", "image": IMAGE, "url": running.url}
    fcfs = Fcfs(rule=rule(chunked_prefill=True, max_num_seqs=16, tokens=256))
    system = System("test", fcfs, RoundRobin(), Everywhere(("m", (0,))), prewarm=prewarm)
    load = with_container([20, 1, 20], [200, 1, 3], seconds=0.4, max_context_tokens=1024)
    replace(engine(), containers=about).run(load, system, recorder)
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
    assert docker.DockerClient(base_url=running.url).containers.list(all=True) == []
