"""Run folders, as far as a figure reads them."""

from pathlib import Path

import pandas as pd


def write_chain_run(folder: Path) -> Path:
    """Summaries on one GPU, then on two, beside an ensemble that ends at 4 s."""
    folder.mkdir(parents=True)
    names = ["vicuna-13b-v1.5~summary@0#1", "vicuna-13b-v1.5~summary@0#2", "koala@1#1"]
    names.append("vicuna-13b-v1.5~summary@1#2")
    pd.DataFrame(
        {
            "gpu": [0, 0, 1, 1, 0, 0, 1, 1],
            "group": [
                names[0],
                names[0],
                names[2],
                names[2],
                names[1],
                names[1],
                names[3],
                names[3],
            ],
            "use": ["loading", "busy"] * 4,
            "start_s": [0.0, 1.0, 0.0, 2.0, 4.0, 5.0, 4.0, 5.0],
            "end_s": [1.0, 4.0, 2.0, 4.0, 5.0, 9.0, 5.0, 8.0],
        }
    ).to_parquet(folder / "gpu.parquet")
    pd.DataFrame(
        {
            "service": ["vicuna-13b-v1.5~summary"] * 3 + ["koala"],
            "app": [0, 0, 1, 2],
            "finished_s": [3.0, 9.0, 8.0, 4.0],
            "output_tokens": [10, 20, 10, 5],
        }
    ).to_parquet(folder / "requests.parquet")
    return folder
