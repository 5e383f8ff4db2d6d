"""Table 1 has a line for every model."""

import pandas as pd
from rich.console import Console

from plots import ssjf_table1
from plots.inputs import Inputs


def test_every_model_is_printed() -> None:
    milliseconds = {"paper_ms": 10.0, "prompt_ms": 1.0, "generate_ms": 25.0}
    ratios = {"prompt_ratio": 0.1, "generate_ratio": 2.5}
    rows = [{"paper": name, **milliseconds, **ratios} for name in ("one", "another")]
    inputs = Inputs(name="tab1", tables={"latencies": pd.DataFrame(rows)})
    console = Console(width=100)
    with console.capture() as printed:
        console.print(ssjf_table1.plot(inputs))
    lines = [line for line in printed.get().splitlines() if "0.100" in line and "2.50" in line]
    assert all(name in line for name, line in zip(("one", "another"), lines, strict=True))
