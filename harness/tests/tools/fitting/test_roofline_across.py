from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.config.paths import PROFILES
from harness.costs.gpu_facts import gpu_facts
from harness.costs.model_facts import model_facts
from harness.costs.roofline import (
    allreduce_bytes_per_token,
    allreduce_s_per_token,
    read_calibration,
    roofline_profile,
)
from harness.tests.support.data import DATA
from harness.tools.fitting.components import FOLDER as LOGGED
from harness.tools.fitting.iteration_rows import measured_sources
from harness.tools.fitting.operator_rates import (
    calibrated_overheads,
    link_efficiency,
    memory_efficiency,
    pcie_efficiency,
    scaled,
)
from harness.tools.fitting.roofline_across import (
    FOLDER,
    Compared,
    across_errors,
    across_file,
    left_out,
    slowdown_of,
)
from harness.tools.fitting.stored import as_text

ONE_ENGINE = read_calibration(PROFILES / LOGGED)
CORRECTED = read_calibration(PROFILES / FOLDER)


def _pair(family: str, measured_s: float, *, size: int = 1, phase: str = "decode") -> Compared:
    """Predicted: 1 s of forward pass and 0.5 s of CPU side."""
    whole = np.full(3, measured_s)
    return Compared(family, "g", "e", "m", size, phase, whole, np.ones(3), np.full(3, 0.5))


PAIRS = [_pair("a", 2.5), _pair("a", 3.5), _pair("b", 1.5), _pair("c", 4.5, size=3)]


def test_the_slowdown_is_a_median_over_groups_of_authors() -> None:
    """Forward ratios 2 and 3 of one group, 1 of the other; three GPUs count with two."""
    assert slowdown_of(PAIRS)["decode"] == {1: pytest.approx((2.5 + 1.0) / 2), 2: 4.0}
    assert left_out(PAIRS)["b"]["decode"][1] == 2.5
    assert left_out(PAIRS)["c"]["decode"] == {1: pytest.approx(1.75)}


def test_errors_leave_the_pair_s_authors_out() -> None:
    pairs = [*PAIRS, _pair("a", 2.0, phase="prefill"), _pair("b", 2.0, phase="prefill")]
    plain = across_errors(pairs, corrected=False, but_for="c")
    by_hand = [float(np.median([1 - 1.5 / 2.5, 1 - 1.5 / 3.5])), 0.0]
    assert plain["decode_median"] == pytest.approx(np.median(by_hand))
    assert plain["prefill_p95"] == pytest.approx(0.25)
    judged = across_errors(pairs, corrected=True, but_for="c")
    # a by b alone (factor 1): as before; b by a alone (factor 2.5): (2.5 + 0.5) / 1.5 - 1 = 1
    assert judged["decode_median"] == pytest.approx(np.median([by_hand[0], 1.0]))


def test_a_slowdown_multiplies_the_forward_pass_only() -> None:
    model, gpu = model_facts("opt-13b"), gpu_facts("A100-80G")
    slow = replace(ONE_ENGINE, slowdown={"prefill": {1: 2.0}, "decode": {1: 3.0}})
    plain, slowed = (roofline_profile(model, gpu, 1, found) for found in (ONE_ENGINE, slow))
    for phase, factor in (("prefill", 2.0), ("decode", 3.0)):
        before, after = getattr(plain, phase), getattr(slowed, phase)
        assert after["other"] == before["other"]
        for name, values in before["forward"].items():
            assert after["forward"][name] == pytest.approx(np.array(values) * factor, rel=1e-5)
    assert slowed.step_s == pytest.approx(np.array(plain.step_s) * 2.0, rel=1e-5)


def test_beyond_a_bridge_all_reduces_go_over_pcie() -> None:
    """Four GPUs with bridges of two: 32 GB/s x 0.5 instead of NVLink."""
    model, bridged = model_facts("opt-13b"), gpu_facts("A100-80G-PCIe")
    found = replace(ONE_ENGINE, pcie_efficiency=0.5)
    four = allreduce_s_per_token(model, bridged, 4, found)
    assert four == pytest.approx(allreduce_bytes_per_token(model, 4) / 16e9)
    two = allreduce_s_per_token(model, bridged, 2, found)
    assert two == allreduce_s_per_token(model, gpu_facts("A100-80G"), 2, found)


def test_operator_rates_by_hand(tmp_path: Path) -> None:
    """Half of each published rate, and rows that must not count."""
    (tmp_path / "vllm_kernels").mkdir()
    (tmp_path / "vidur_profiles").mkdir()
    gemm = {"m": [1, 1, 512], "n": 4096, "k": 4096, "device": ["a100_sxm", "h100_sxm", "a100_sxm"]}
    half_ms = 2 * 4096**2 / (0.5 * 2.039e12) * 1e3
    pd.DataFrame({**gemm, "latency_ms": [half_ms, 1.0, 1.0]}).to_parquet(
        tmp_path / "vllm_kernels" / "gemm_bf16.parquet"
    )
    assert memory_efficiency(tmp_path) == pytest.approx(0.5)
    ring = {"device": "a100_sxm", "num_gpus": [2, 4, 4], "message_elements": [2**24, 2**24, 64]}
    half = [2**25 / 150e9 * 1e3, 1.5 * 2**25 / 150e9 * 1e3, 9.0]
    pd.DataFrame({**ring, "backend": "vllm_eager", "latency_ms": half}).to_parquet(
        tmp_path / "vllm_kernels" / "allreduce_bf16.parquet"
    )
    assert link_efficiency(tmp_path) == {2: pytest.approx(0.5), 4: pytest.approx(0.5)}
    network = {"network": "a100_pairwise_nvlink", "op": "all_reduce", "num_workers": [4, 2]}
    slow_ms = 1.5 * 2**25 / 16e9 * 1e3
    pd.DataFrame({**network, "size_bytes": 2**25, "median_ms": [slow_ms, 1.0]}).to_parquet(
        tmp_path / "vidur_profiles" / "network.parquet"
    )
    assert pcie_efficiency(tmp_path) == pytest.approx(0.5)


def test_the_cpu_side_is_read_at_the_batch_size_and_scaled_as_a_whole() -> None:
    rows = pd.DataFrame({"tensor_parallel_degree": [1, 2], "batch_size": [64, 128]})
    decode = {size: ONE_ENGINE.overheads[size]["decode"] for size in (1, 2)}
    at = [ONE_ENGINE.knots_requests.index(count) for count in (64, 128)]
    by_hand = [
        sum(parts[part]["base_s"][place] for part in ("prepare", "sample", "other"))
        for parts, place in zip(decode.values(), at, strict=True)
    ]
    assert calibrated_overheads(rows, ONE_ENGINE).tolist() == pytest.approx(by_hand)
    half = replace(ONE_ENGINE, overheads=scaled(ONE_ENGINE.overheads, 0.5))
    assert calibrated_overheads(rows, half).tolist() == pytest.approx(np.array(by_hand) / 2)


def test_the_correction_helps_left_out_authors() -> None:
    """What the stored file says of engines other than the calibrated one."""
    assert CORRECTED.error["prefill_median"] < 0.13
    assert CORRECTED.error["decode_median"] < 0.17
    assert not ONE_ENGINE.slowdown


@pytest.mark.slow
@pytest.mark.skipif(
    not all((DATA / source.file).is_file() for source in measured_sources()),
    reason=f"the measurements are not in {DATA}",
)
def test_the_corrected_calibration_is_reproduced_byte_for_byte() -> None:
    kept = (PROFILES / FOLDER / "roofline.json").read_text(encoding="utf-8")
    made = as_text(across_file(DATA, PROFILES / LOGGED))
    assert made == kept
