from harness.predictors.oracle import Oracle
from harness.tests.serving import workload


def test_it_knows_the_true_lengths_at_once() -> None:
    load = workload([3, 4], [17, 5])
    predictor = Oracle().of(load, 0)
    guesses = [predictor.predict(load.facts(request)) for request in (0, 1)]
    assert [(length.samples_tokens, seconds) for length, seconds in guesses] == [
        ((17,), 0.0),
        ((5,), 0.0),
    ]
