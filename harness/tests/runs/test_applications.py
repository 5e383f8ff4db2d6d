"""Figures of applications by hand."""

import numpy as np
import pandas as pd
import pytest

from harness.runs.applications import application_figures, figures_by_kind
from harness.runs.fairness import tenant_service

APPS = pd.DataFrame(
    {
        "app": [0, 1, 2, 3],
        "kind": ["a", "b", "a", "b"],
        "arrived_s": [0.0, 1.0, 2.0, 30.0],
        "finished_s": [4.0, 7.0, np.nan, np.nan],
        "deadline_s": [4.0, 6.0, 9.0, np.nan],
    }
)


def test_one_that_is_not_done_enters_at_its_age_and_misses_its_deadline() -> None:
    """4 and 6 s, and at least 18 by second 20; one would have come later."""
    figures = application_figures(APPS, horizon_s=20.0)
    assert figures == {
        "applications": 4,
        "applications_unfinished": 2,
        "act_s_mean": pytest.approx(28 / 3),
        "act_s_p95": pytest.approx(16.8),
        "deadlines_met": pytest.approx(1 / 3),
    }


def test_by_kind() -> None:
    figures = figures_by_kind(APPS, horizon_s=20.0)
    assert {kind: of["deadlines_met"] for kind, of in figures.items()} == {"a": 0.5, "b": 0.0}
    assert figures_by_kind(APPS[APPS["kind"] == "a"], horizon_s=20.0) == {}


def test_without_applications_nothing_is_known() -> None:
    assert all(np.isnan(value) for value in application_figures(None, horizon_s=1.0).values())
    assert figures_by_kind(None, horizon_s=1.0) == {}


def test_service_of_tenants_counts_answers_twice_and_only_what_has_begun() -> None:
    requests = pd.DataFrame(
        {
            "tenant": ["x", "y", "x"],
            "started_s": [0.0, 0.5, np.nan],
            "prompt_tokens": [10, 20, 40],
            "output_tokens": [5, 1, 0],
        }
    )
    assert tenant_service(requests) == {
        "x": {"service_tokens": 20.0},
        "y": {"service_tokens": 22.0},
    }
