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


def test_rates_of_few_bits_and_what_the_driver_reports() -> None:
    h100, b200 = gpu_facts("H100-80G"), gpu_facts("B200-180G")
    assert (h100.fp8_flops_per_s, h100.fp4_flops_per_s) == (1978.9e12, None)
    assert (b200.fp8_flops_per_s, b200.fp4_flops_per_s) == (4.5e15, 9e15)
    assert gpu_facts("A100-80G").fp8_flops_per_s is None
    assert gpu_facts("H200-141G").usable_bytes == round(139.80 * 2**30)
    for gpu in load_gpus().values():
        rates = [gpu.fp16_flops_per_s, gpu.fp8_flops_per_s, gpu.fp4_flops_per_s]
        known = [rate for rate in rates if rate is not None]
        assert known == sorted(known)
        if gpu.usable_bytes is not None:
            assert 0.91 < gpu.usable_bytes / gpu.memory_bytes <= 1.0
