import pytest

from harness.costs.gpu_facts import gpu_facts, load_gpus


def test_unknown_names_are_answered_with_close_ones() -> None:
    with pytest.raises(ValueError, match=r"No GPU is called 'A100'; .*A100-80G"):
        gpu_facts("A100")


def test_gpu_figures_are_those_of_the_data_sheets() -> None:
    a100 = gpu_facts("A100-80G")
    assert (a100.fp16_flops_per_s, a100.memory_bytes_per_s) == (312e12, 2.039e12)
    assert 2 * gpu_facts("H200-141G").nvlink_bytes_per_s == 900e9
    assert gpu_facts("A800-80G").nvlink_bytes_per_s < a100.nvlink_bytes_per_s
    assert gpu_facts("A100-80G-PCIe").memory_bytes_per_s == 1.935e12
    for gpu in load_gpus().values():
        assert (gpu.pcie_bytes_per_s < gpu.nvlink_bytes_per_s) == (gpu.nvlink_gpus > 1)
