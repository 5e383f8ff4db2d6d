from dataclasses import replace

import numpy as np

from harness.interface.decisions import Deployment
from harness.interface.graph import Edges
from harness.interface.views import ClusterView
from harness.predictors.oracle import Oracle
from harness.tests.support.serving import Everywhere, serve, workload


def test_calls_that_wait_are_known_when_their_application_comes_in() -> None:
    """A planner asked at the start sees true lengths of calls to come; not without a predictor."""
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


def test_a_predictor_that_foresees_changes_no_time_of_chains() -> None:
    """Calls of a chain run on in compiled code, stepped and without a predictor alike."""
    rng = np.random.default_rng(2)
    parent = np.arange(0, 60).reshape(20, 3)[:, :2].ravel()
    edges = Edges(parent, parent + 1, np.ones(len(parent), np.bool_))
    answers = rng.integers(1, 30, 60)
    own = rng.integers(5, 50, 60)
    plain = workload((own + edges.carried(answers)).tolist(), answers.tolist(), [0.0] * 60)
    load = replace(plain, edges=edges, own_tokens=own)
    runs = [
        serve(load, predictor=predictor, fast_forward=ahead).requests
        for predictor in (None, Oracle().of(load, 0))
        for ahead in (True, False)
    ]
    for other in runs[1:]:
        np.testing.assert_allclose(other["finished_s"], runs[0]["finished_s"], rtol=1e-12)
        np.testing.assert_array_equal(other["preemptions"], runs[0]["preemptions"])
