"""Where the project and its stored profiles are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The project's folder: `harness/`, `scenarios/` and `results/` are in it."""

PROFILES = ROOT / "harness" / "profiles"
"""Costs, lengths, arrivals and predictors as they are stored."""
