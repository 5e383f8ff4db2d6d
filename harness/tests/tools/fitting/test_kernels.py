"""Tables of kernels: what holds of all that is stored, and that the measurements give it."""

import numpy as np
import pytest

from harness.costs.gpu_facts import gpu_facts
from harness.costs.kernels import FORMULA, KERNELS, read_formulas, read_table, tables
from harness.tests.support.data import DATA
from harness.tools.fitting.kernels import GPUS, formula_file, kernel_file
from harness.tools.fitting.stored import as_text

SILICON = DATA / "silicon" / "kernels"
needs_silicon = pytest.mark.skipif(
    not SILICON.is_dir(), reason=f"the measurements are not in {DATA}"
)
NOISE = 0.1
"""Share by which a bigger matrix, or batch, may be faster; kernels change with the size."""


def test_every_measured_gpu_has_a_table() -> None:
    assert tables() == sorted(GPUS.values())
    formats = {gpu: set(read_table(KERNELS / f"{gpu}.json").gemm_us) for gpu in tables()}
    assert formats.pop("A100-80G") == {"bf16"}
    assert formats.pop("B200-180G") == {"bf16", "fp8", "fp8_block", "nvfp4"}
    assert all(each == {"bf16", "fp8", "fp8_block"} for each in formats.values())


@pytest.mark.parametrize("gpu", tables())
def test_seconds_never_fall_with_rows(gpu: str) -> None:
    table = read_table(KERNELS / f"{gpu}.json")
    for grid in table.gemm_us.values():
        assert (np.diff(np.array(grid), axis=2) >= 0).all()
    for shapes in table.experts_us.values():
        for splits in shapes.values():
            assert all((np.diff(line) >= 0).all() for line in splits.values())
    for line in table.all_reduce.values():
        assert (np.diff(line.us) >= 0).all()


@pytest.mark.parametrize("gpu", tables())
def test_bigger_matrices_are_hardly_faster(gpu: str) -> None:
    """Of 98% of neighbouring sizes; fp8 of a B200 differs more from size to size."""
    for kind, grid in read_table(KERNELS / f"{gpu}.json").gemm_us.items():
        us = np.array(grid)
        for faster in (us[:-1] / us[1:] - 1.0, us[:, :-1] / us[:, 1:] - 1.0):
            share = 0.9 if (kind, gpu) == ("fp8", "B200-180G") else 0.98
            assert np.quantile(faster, share) < NOISE


@pytest.mark.parametrize("gpu", tables())
def test_bigger_batches_of_decodes_are_hardly_faster(gpu: str) -> None:
    """Attention is a line over the context for each batch, so that noise remains."""
    table = read_table(KERNELS / f"{gpu}.json")
    batches = np.array(table.batches, np.float64)
    for entry in (*table.decode_attention.values(), *table.latent_attention.values()):
        for context in (512, 2048, 8192):
            slope_us = 1e-6 * np.array(entry.per_context_ps)
            us = np.array(entry.base_us) + slope_us * batches * context
            assert (us[:-1] / us[1:] - 1.0).max() < 2 * NOISE


def test_groups_of_two_four_and_eight_add_up_bytes() -> None:
    for gpu in tables():
        found = read_table(KERNELS / f"{gpu}.json").all_reduce
        assert set(found) == {"2", "4", "8"}
        assert all(line.bytes[0] <= 1024 and line.bytes[-1] >= 2**24 for line in found.values())


def test_formulas_have_what_their_kernels_need() -> None:
    formulas = read_formulas()
    for name in ("gemm", "decode_attention", "prompt_attention", "experts", "all_reduce"):
        formula = getattr(formulas, name)
        assert 0 < formula.error < 0.25
        assert (formula.read > 0) == (name != "prompt_attention")
        assert (formula.compute > 0) == (name not in ("decode_attention", "all_reduce"))


@needs_silicon
@pytest.mark.parametrize("folder", ["a100_sxm", "h200_sxm"])
def test_a_table_is_reproduced_byte_for_byte(folder: str) -> None:
    made = kernel_file(SILICON / folder, gpu_facts(GPUS[folder]))
    kept = (KERNELS / f"{GPUS[folder]}.json").read_text(encoding="utf-8")
    assert as_text(made, compact=True) == kept


@needs_silicon
def test_formulas_are_reproduced_byte_for_byte() -> None:
    assert as_text(formula_file(DATA)) == FORMULA.read_text(encoding="utf-8")
