"""How vLLM is run, and how the engine of each group follows from that."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.config.hub import model_folder
from harness.config.paths import ROOT
from harness.costs.model_names import is_config, model_of
from harness.engines.engine import refuse_seconds
from harness.engines.vllm.group import EngineSettings, VllmGroup
from harness.engines.vllm.scheduler import PolicyScheduler
from harness.interface.entities import Cluster, Group, Service, ServiceId


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """How vLLM is run.

    `models` says for each service which model stands for it: a folder, a config in one, or
    NAME@REVISION of a hub; services it does not list are asked for under their own name. With
    `load_format` dummy the weights are random. None leaves `kv_blocks` and `block_tokens` to vLLM;
    services of one group share `kv_blocks` of equal bytes, of `block_tokens` or a multiple of them;
    as `dtype` it is bfloat16, or float32 on a CPU that has no instructions for it. With
    `keep_loaded` the next run in this process finds its models loaded; with `keep_answers` the
    tokens of the last run's answers are in `answers`. With `ray` every group is an actor in a
    placement group of its own, and groups may come and go; one that changes its services keeps its
    process, gives all its requests up, and computes nothing until it has loaded what it lacks. If a
    process dies, `on_loss` says what becomes of its requests: fail (the run ends), lost (they count
    as unfinished) or redo (they go to groups of their service with the tokens that have been
    reported; the process is started again if its group stays).

    Backends of applications are waited for, not run; `containers` starts those of a `pool` with
    docker: its other keys are those of `harness.engines.containers.Containers`.

    Prompts are random tokens of the workload's lengths, or the `texts` of a file, one a line, in
    turn, cut to those lengths by the model's own tokenizer. A run ends at `horizon_s`, if that is
    given, with whatever is unfinished then. Its clock starts when the first deployment begins to
    load, with `loads_first` when it has. Answers have the workload's lengths, or
    with `forces_lengths` off end where the model ends them, at the limit at the latest.

    With `speed_sweep` a few seconds of designed batches before and after a run say how fast the
    machine was then, whose speed drifts where others share it: on CPUs, not on GPUs. Its groups are
    then in this process.
    """

    cluster: Cluster
    seed: int
    models: Mapping[str, str]
    load_format: str
    dtype: str | None
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int | None
    block_tokens: int | None
    prefix_caching: bool
    eager: bool
    keep_answers: bool
    keep_loaded: bool
    ray: bool
    on_loss: str
    texts: str | None
    forces_lengths: bool
    containers: Mapping[str, Any] | None = None
    horizon_s: float | None = None
    loads_first: bool = False
    speed_sweep: bool = False
    loaded: dict[tuple[EngineSettings, ...], VllmGroup] = field(default_factory=dict)
    answers: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a word that `on_loss` does not know, and seconds that no run can have."""
        refuse_seconds(self.horizon_s)
        if self.speed_sweep and self.ray:
            raise ValueError(
                "engine.speed_sweep=true times groups of this process, and engine.ray=true gives "
                "each a process of its own: set engine.speed_sweep=false"
            )
        if self.on_loss not in ("fail", "lost", "redo"):
            raise ValueError(f"engine.on_loss={self.on_loss} is none of fail, lost and redo")

    def model_path(self, service: ServiceId) -> str:
        """The folder of the model that stands for a service. ValueError where there is none."""
        name = model_of(service)
        model = self.models.get(name, name)
        config = Path(model).parent if is_config(model) and Path(model).is_file() else Path(model)
        for folder in (ROOT / "scenarios" / "models" / model, config):
            if folder.is_dir():
                return str(folder)
        return model_folder(f"engine.models.{name}", model)

    def settings(self, services: Sequence[Service], group: Group) -> tuple[EngineSettings, ...]:
        """How the engines of a group are built.

        ValueError where several services cannot share KV blocks.
        """
        if len(services) > 1:
            self._refuse_sharing(", ".join(service.id for service in services))
        return tuple(self._settings(service, group) for service in services)

    def _refuse_sharing(self, names: str) -> None:
        if self.kv_blocks is None:
            raise ValueError(f"engine.kv_blocks=null: {names} share blocks, say how many")
        if self.prefix_caching:
            raise ValueError(
                f"engine.prefix_caching=true: {names} share blocks, and equal prompts of different"
                " models have different KV"
            )

    def _settings(self, service: Service, group: Group) -> EngineSettings:
        return EngineSettings(
            model=self.model_path(service.id),
            load_format=self.load_format,
            dtype=self.dtype,
            max_context_tokens=service.max_context_tokens,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            kv_blocks=self.kv_blocks,
            block_tokens=self.block_tokens,
            prefix_caching=self.prefix_caching,
            eager=self.eager,
            tensor_parallel=group.tensor_parallel,
            scheduler=PolicyScheduler,
        )
