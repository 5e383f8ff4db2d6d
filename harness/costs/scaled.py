"""Costs that are a factor off: iterations take longer or shorter than a profile says."""

from abc import abstractmethod

from harness.costs.iteration import IterationTable
from harness.costs.model import ProfileCosts
from harness.interface.entities import ServiceId, Work


class ScaledCosts(ProfileCosts):
    """Other costs, prefill and decode seconds of each service multiplied by a factor each.

    Loads and KV blocks are the same.
    """

    def __init__(self, costs: ProfileCosts) -> None:
        vars(self).update(vars(costs))
        self._costs = costs

    @abstractmethod
    def factors(self, service: str, tensor_parallel: int) -> tuple[float, float]:
        """What prefill and decode seconds are multiplied by."""

    def table(self, service: str, tensor_parallel: int) -> IterationTable:
        """As `ProfileCosts`, multiplied."""
        prefill, decode = self.factors(service, tensor_parallel)
        table = self._costs.table(service, tensor_parallel)
        by_name = {
            name: values * (prefill if name.startswith("prefill") else decode)
            for name, values in table._asdict().items()
        }
        return IterationTable(**by_name)

    def iteration_s(
        self, service: ServiceId, tensor_parallel: int, work: Work, *, gpu_share: float = 1.0
    ) -> float:
        """As `ProfileCosts`, by the factor of what the iteration mostly is."""
        prefill, decode = self.factors(service, tensor_parallel)
        seconds = self._costs.iteration_s(service, tensor_parallel, work, gpu_share=gpu_share)
        return seconds * (prefill if work.prefill_requests else decode)
