"""The log of a server that is simulated on one H100."""

from pathlib import Path

import numpy as np

from harness import api
from harness.config.hydra_words import word
from harness.runs.building import cell_of
from harness.runs.cells import compute

MODEL = "Llama-2-7b-hf"


def simulated_log(
    folder: Path, *words: str, model: str = MODEL, requests: int = 200, rate_per_s: float = 4.0
) -> Path:
    """What a simulated server logs of requests at random times."""
    rng = np.random.default_rng(3)
    come_s = np.cumsum(rng.exponential(1 / rate_per_s, requests))
    prompts = np.clip(500 * np.exp(0.9 * rng.normal(size=requests)), 16, 3000).astype(int)
    answers = np.clip(80 * np.exp(0.7 * rng.normal(size=requests)), 1, 800).astype(int)
    rows = zip((come_s - come_s[0]).tolist(), prompts.tolist(), answers.tolist(), strict=True)
    lines = ["arrival_s,prompt_tokens,output_tokens", *(f"{a!r},{b},{c}" for a, b, c in rows)]
    (folder / "served.csv").write_text("\n".join(lines), encoding="utf-8")
    config = api.configuration(
        *("workload=trace", "hardware=h100_80g_8", "hardware.gpu_count=1"),
        *("hardware.nvlink_island=1", "tracking=none", word("workload.model", model)),
        *(word("workload.file", str(folder / "served.csv")), *words),
    )
    served = compute(cell_of(config)).requests
    path = folder / "log.jsonl"
    columns = {"first_token_s": "first_token_s", "finished_s": "end_s"}
    kept = served[["arrival_s", "prompt_tokens", "output_tokens", *columns]]
    kept.rename(columns=columns).to_json(path, orient="records", lines=True, double_precision=15)
    return path
