"""Tables on the shapes of measured data."""

import numpy as np
import pytest

from harness.config.paths import PROFILES
from harness.tests.support.data import DATA
from harness.tools.fitting.shapes import line, shape_files
from harness.tools.fitting.stored import as_text


def test_a_line_explains_what_is_on_it_and_not_what_is_not() -> None:
    x = np.arange(6, dtype=np.float64)
    exact = line(x, 2.0 + 3.0 * x)
    assert (exact["base_s"], exact["per_x_s"]) == pytest.approx((2.0, 3.0))
    assert exact["explained"] == pytest.approx(1.0)
    assert line(x, np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]))["explained"] < 0.01


@pytest.mark.skipif(not DATA.is_dir(), reason="the measurements are not on this machine")
def test_the_tables_are_reproduced_byte_for_byte() -> None:
    for name, content in shape_files(DATA):
        assert (PROFILES / "derived" / name).read_text(encoding="utf-8") == as_text(content)
