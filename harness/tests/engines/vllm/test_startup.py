"""Under which settings, and without which policy, the scheduler does not start."""

from multiprocessing import current_process
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow]


from harness.engines.vllm import dry as vllm_dry  # noqa: E402
from harness.tests.support.scheduler_bench import Bench, Ranked  # noqa: E402


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("async_scheduling", True, "--no-async-scheduling"),
        ("enable_chunked_prefill", False, "chunked prefill must be on"),
    ],
)
def test_settings_under_which_decisions_would_not_hold_are_refused(
    setting: str, value: bool, says: str
) -> None:
    config = vllm_dry._config(16, 256, 4096, False).scheduler_config
    before = getattr(config, setting)
    setattr(config, setting, value)
    try:
        with pytest.raises(ValueError, match=says):
            Bench(Ranked())
    finally:
        setattr(config, setting, before)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{_target_: harness.nowhere.Nothing}",
            "holds no policy: _target_=harness.nowhere.Nothing names no class",
        ),
        ("{_target_: baselines.srtf.Srtf, seats: 4}", "seats=4 is not an option of Srtf"),
        ("{_target_: [", "holds no policy"),
    ],
)
def test_a_file_without_a_policy_is_refused_when_the_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    monkeypatch.setenv("SCHEDULER_POLICY", str(path))
    with pytest.raises(ValueError, match=says):
        Bench(Ranked())


def test_a_server_without_a_policy_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of vLLM's own nobody could attach one."""
    monkeypatch.delenv("SCHEDULER_POLICY", raising=False)
    monkeypatch.setattr(current_process(), "name", "EngineCore")
    with pytest.raises(ValueError, match="no policy: set SCHEDULER_POLICY"):
        Bench(Ranked())
