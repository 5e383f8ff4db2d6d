"""Seconds that requests take alone: by hand, and as the simulator serves them."""

import numpy as np
import pytest

from harness.costs.iteration import IterationTable
from harness.costs.model import PARTS, ProfileCosts
from harness.interface.entities import ServiceId
from harness.planning.solo import fewest_gpus, service_profiles, solo_seconds
from harness.runs.building import window_of
from harness.tests.support.serving import SERVICE, FlatCosts, LinearCosts, serve, workload

A100 = ProfileCosts(gpu="A100-80G", profile_dir="a100_80g_vllm_0_3", memory_share=0.9, parts=PARTS)


def solo_s(costs: LinearCosts | ProfileCosts, name: str, prompt: int, output: int) -> float:
    one = np.array([0]), np.array([prompt]), np.array([output])
    return float(solo_seconds(costs, [ServiceId(name)], *one)[0])


@pytest.mark.parametrize("costs", [FlatCosts(), LinearCosts()])
def test_they_are_those_of_a_run_alone(costs: LinearCosts) -> None:
    """Loads 1 s: what a request takes from there is what it takes alone."""
    alone = serve(workload([9], [4]), costs=costs).requests
    assert alone["finished_s"].tolist() == pytest.approx([1.0 + solo_s(costs, SERVICE, 9, 4)])


def test_they_grow_with_the_context_of_each_token() -> None:
    """0.5 s for the prompt, 1 ms a token of context: 11, 12 and 13 of them for 10 + 4 tokens."""

    class Growing(FlatCosts):
        def table(self, service: ServiceId, tensor_parallel: int) -> IterationTable:
            flat = FlatCosts.table(self, service, tensor_parallel)
            per_token_s = np.full(1025, 0.001)
            return flat._replace(decode_base_s=np.zeros(1025), decode_per_context_s=per_token_s)

    assert solo_s(Growing(), "m", 10, 4) == pytest.approx(0.536)


def test_a_large_model_is_alone_on_two_gpus() -> None:
    assert fewest_gpus(A100, ServiceId("Llama-2-7b-hf")) == 1
    assert fewest_gpus(A100, ServiceId("Llama-2-70b-hf~big")) == 2


def test_profiles_are_means_and_deviations_of_each_service() -> None:
    """Prompts take 0.5 s and further tokens 0.25 s: answers of 1 and 5 tokens 0.5 and 1.5 s."""
    profiles = service_profiles(FlatCosts(), window_of(workload([3, 3], [1, 5])))
    (profile,) = profiles.values()
    assert (profile.mean_s, profile.std_s) == pytest.approx((1.0, 0.5))
