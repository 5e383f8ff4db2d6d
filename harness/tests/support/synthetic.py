"""Settings of a synthetic workload for the smallest model."""

from typing import Any

SYNTHETIC: dict[str, Any] = {
    "model": "tiny",
    "requests": 4000,
    "rate_per_s": 5.0,
    "burstiness": 1.0,
    "prompt_median_tokens": 60,
    "prompt_sigma": 0.8,
    "output_median_tokens": 40,
    "output_sigma": 0.5,
    "max_prompt_tokens": 500,
    "max_output_tokens": 300,
    "starts_s": 0.0,
}
