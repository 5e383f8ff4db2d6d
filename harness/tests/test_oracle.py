from dataclasses import replace

import numpy as np

from harness.decisions import Deployment
from harness.predictors.oracle import Oracle
from harness.tests.serving import Everywhere, serve, workload
from harness.views import ClusterView
from harness.workloads.graph import Edges


def test_it_knows_the_true_lengths_at_once() -> None:
    load = workload([3, 4], [17, 5])
    predictor = Oracle().of(load, 0)
    guesses = [predictor.predict(load.facts(request)) for request in (0, 1)]
    assert [(length.samples_tokens, seconds) for length, seconds in guesses] == [
        ((17,), 0.0),
        ((5,), 0.0),
    ]


def test_calls_that_wait_are_known_when_their_application_comes_in() -> None:
    """A planner asked at the start sees the true lengths of calls to come, unlike with nobody."""
    seen: list[list[float]] = []

    class Looking(Everywhere):
        def place(self, view: ClusterView) -> Deployment:
            (service,) = view.services
            seen.append(view.to_come(service).predicted_mean_tokens.tolist())
            return super().place(view)

    edges = Edges(np.array([0, 1]), np.array([1, 2]), np.array([True, False]))
    load = replace(
        workload([5, 9, 5], [4, 2, 7], [0.0, 0.0, 0.0]),
        edges=edges,
        own_tokens=np.array([5, 5, 5]),
    )
    for predictor in (Oracle().of(load, 0), None):
        frame = serve(load, None, Looking(("m", (0,))), predictor=predictor).requests
        assert frame["finished_s"].notna().all()
    assert seen[0] == [2.0, 7.0]
    assert np.isnan(seen[1]).all()
