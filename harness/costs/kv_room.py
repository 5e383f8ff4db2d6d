"""Bytes that vLLM leaves for KV on each GPU, before it serves.

Follows `determine_available_memory` of vLLM's worker: of the share of the memory that it may use,
it takes off what is consumed after a dummy pass (weights, context, buffers of NCCL), the highest
that the pass held for a while, and, since 0.21, an estimate of the CUDA graphs. The dummy pass
runs the whole token budget of an iteration through the model, then samples for every request that
may run at once. Its tensors follow from shapes; the constants were set on the logs of
`harness/tests/costs/test_kv_room.py` and are named in `guesses`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.costs.gpu_facts import GpuFacts
from harness.costs.layer_kinds import Mlp
from harness.costs.model_facts import BYTES_PER_NUMBER, ModelFacts

GIB = 2**30
Version = tuple[int, int]
"""Major and minor of a release of vLLM."""
Limits = tuple[int | None, int | None]
"""Tokens of an iteration and requests at once; None is vLLM's default on the GPU."""
LATEST: Version = (0, 32)

USABLE_SHARE = 0.99  # of the nominal memory, where the driver's total is not known
HIDDEN_COPIES = 3.4  # hidden states beside the MLP of a layer: residual, inputs, outputs
OTHER_PEAK_BYTES = int(0.05 * GIB)
GRAPH_BYTES = int(0.3 * GIB)  # memory pool of the first graph
GRAPH_BYTES_PER_LAYER = 0.35 * 2**20  # of a layer in the graphs of one captured size
MXFP4_MULTIPLE = 256  # to which experts' hidden size is padded


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRules:
    """What a release does, from `since` on.

    `logit_bytes` are held at once for each number of logits while tokens are sampled.
    `context_bytes` of a GPU are allocated outside of the tensor library after the engine has set up
    communication, by the size of the group that NVLink joins.
    """

    since: Version
    logit_bytes: float
    context_bytes: Mapping[int, float]
    counts_graphs: bool = False


SORTING_BYTES = 38.0  # 16-bit and float32 logits, sorted values and indices, buffers of the sort
FILTERING_BYTES = 14.5  # 16-bit and float32 logits, probabilities, noise, mask
GUMBEL_BYTES = 2.0  # 16-bit logits; the sampling kernel writes no tensor of their size
# Logs of H100; four L40S without NVLink: 0.21 GiB.
_OLD = {1: 0.13 * GIB, 2: 0.55 * GIB, 4: 1.84 * GIB}
_NEW = {1: 0.25 * GIB, 2: 2.07 * GIB, 4: 2.15 * GIB}
# From 0.17 on logits are filtered without a sort, from 0.21 on CUDA graphs are counted, and from
# 0.26 on the second model runner is the default.
RULES = (
    EngineRules(since=(0, 0), logit_bytes=SORTING_BYTES, context_bytes=_OLD),
    EngineRules(since=(0, 17), logit_bytes=FILTERING_BYTES, context_bytes=_OLD),
    EngineRules(since=(0, 18), logit_bytes=FILTERING_BYTES, context_bytes=_NEW),
    EngineRules(since=(0, 21), logit_bytes=FILTERING_BYTES, context_bytes=_NEW, counts_graphs=True),
    EngineRules(since=(0, 26), logit_bytes=GUMBEL_BYTES, context_bytes=_NEW, counts_graphs=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvRoom:
    """Memory of each GPU of a group, in bytes, by what takes it; `guesses` are sentences.

    `share_bytes` is what the engine may use. `context_bytes` are the CUDA context and
    communication buffers as far as the engine counts them, `peak_bytes` the most that the dummy
    pass holds beside weights, and `graph_bytes` the CUDA graphs.
    """

    share_bytes: int
    weight_bytes: int
    context_bytes: int
    peak_bytes: int
    graph_bytes: int
    guesses: tuple[str, ...]

    @property
    def kv_bytes(self) -> int:
        """What is left for KV; 0 where the rest does not fit."""
        taken = self.weight_bytes + self.context_bytes + self.peak_bytes + self.graph_bytes
        return max(0, self.share_bytes - taken)


def kv_room(
    model: ModelFacts,
    gpu: GpuFacts,
    tensor_parallel: int,
    memory_share: float,
    *,
    max_batched_tokens: int,
    max_requests: int,
    graph_sizes: Collection[int],
    version: Version = LATEST,
) -> KvRoom:
    """Memory of each GPU of a group under vLLM, and what it leaves for KV.

    `memory_share` (0..1) is vLLM's gpu_memory_utilization, `max_batched_tokens` its
    max_num_batched_tokens, `max_requests` its max_num_seqs, and `graph_sizes` are the captured
    batch sizes, none where graphs are off.
    """
    rules = max((each for each in RULES if each.since <= version), key=lambda each: each.since)
    usable = gpu.usable_bytes or round(USABLE_SHARE * gpu.memory_bytes)
    joined = tensor_parallel if tensor_parallel <= gpu.nvlink_gpus else 1
    context_bytes = rules.context_bytes[max(size for size in rules.context_bytes if size <= joined)]
    counted = len(graph_sizes) if rules.counts_graphs else 0
    return KvRoom(
        share_bytes=round(memory_share * usable),
        weight_bytes=weight_bytes_per_gpu(model, tensor_parallel),
        context_bytes=round(context_bytes),
        peak_bytes=_peak_bytes(
            model, tensor_parallel, max_batched_tokens, max_requests, rules.logit_bytes
        ),
        graph_bytes=_graph_bytes(model, counted),
        guesses=_guesses(model, gpu, rules, context_bytes, counted),
    )


def server_room(
    model: ModelFacts,
    gpu: GpuFacts,
    tensor_parallel: int,
    memory_share: float,
    version: Version,
    limits: Limits = (None, None),
) -> KvRoom:
    """`kv_room` of a server with these limits."""
    tokens, requests = (
        default if own is None else own
        for own, default in zip(limits, default_limits(gpu), strict=True)
    )
    return kv_room(
        model,
        gpu,
        tensor_parallel,
        memory_share,
        max_batched_tokens=tokens,
        max_requests=requests,
        graph_sizes=default_graph_sizes(requests),
        version=version,
    )


def kv_sentence(tokens: int, version: Version, limits: Limits = (None, None)) -> str:
    """How much KV a group has for its requests, and what of that is a guess."""
    release = ".".join(map(str, version))
    given = f"limits of {limits[0]:,} tokens and {limits[1]:,} requests" if all(limits) else ""
    at = given or "its default limits"
    return (
        f"KV of {tokens:,} tokens a group, as vLLM {release} leaves it at {at}, with CUDA context, "
        "graphs and part of the dummy pass by guesses (harness/costs/kv_room.py)"
    )


def default_limits(gpu: GpuFacts) -> tuple[int, int]:
    """Tokens of an iteration and requests at once of a vLLM server that sets neither."""
    if gpu.memory_bytes >= 160 * GIB:
        return 16_384, 1024
    if gpu.memory_bytes >= 70 * GIB and not gpu.name.startswith("A100"):
        return 8192, 1024
    return 2048, 256


def default_graph_sizes(max_requests: int) -> tuple[int, ...]:
    """Batch sizes that vLLM captures unless told otherwise."""
    most = min(2 * max_requests, 512)
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16))
    return tuple(size for size in sizes if size <= most)


def weight_bytes_per_gpu(model: ModelFacts, tensor_parallel: int) -> int:
    """Bytes of weights on each GPU of a group. Routers and norms are on every GPU.

    So are KV heads too few to split. Experts in mxfp4 are padded to a multiple of 256 hidden units.
    """
    whole, repeated = float(model.weight_bytes), 0.0
    for kind in model.layer_kinds:
        mixer, mlp = kind.mixer, kind.mlp
        split = mixer.kv_heads / tensor_parallel if mixer.kv_heads > 1 else 1.0
        if split < 1.0:
            kept = model.hidden_size * mixer.kv_heads * mixer.kv_numbers_per_head
            repeated += kind.layers * kept * model.linear_bytes * (1.0 / split - 1.0)
        copied = mlp.router_parameters + kind.norm_parameters
        repeated += kind.layers * copied * BYTES_PER_NUMBER * (tensor_parallel - 1)
        if model.expert_format == "mxfp4":
            padding = -model.hidden_size % MXFP4_MULTIPLE / model.hidden_size
            whole += kind.layers * mlp.routed_parameters * model.expert_bytes * padding
    return round((whole + repeated) / tensor_parallel)


def _peak_bytes(
    model: ModelFacts, tensor_parallel: int, tokens: int, requests: int, logit_bytes: float
) -> int:
    """The higher of a layer's tensors and the sampler's, beside workspaces of experts."""
    hidden = BYTES_PER_NUMBER * tokens * model.hidden_size
    mlps = [kind.mlp for kind in model.layer_kinds]
    dense = max(mlp.dense_parameters + mlp.shared_parameters for mlp in mlps)
    width = dense / model.hidden_size / tensor_parallel
    layer = HIDDEN_COPIES * hidden + BYTES_PER_NUMBER * tokens * width
    sampler = hidden + logit_bytes * requests * model.vocab_size
    workspace = max(_expert_bytes(model, mlp, tensor_parallel, tokens) for mlp in mlps)
    return round(max(layer, sampler) + workspace) + OTHER_PEAK_BYTES


def _expert_bytes(model: ModelFacts, mlp: Mlp, tensor_parallel: int, tokens: int) -> float:
    """Two workspaces of routed experts, a row for each expert of a token. They are kept.

    The first holds gate and up projections, then outputs; the second what comes between. Kernels
    of mxfp4 write none of them.
    """
    if model.expert_format == "mxfp4":
        return 0.0
    rows = tokens * mlp.experts_per_token
    width = mlp.expert_parameters / (3 * model.hidden_size) / tensor_parallel
    return BYTES_PER_NUMBER * rows * (max(2 * width, model.hidden_size) + width)


def _graph_bytes(model: ModelFacts, sizes: int) -> int:
    """Memory pool of CUDA graphs, and nodes of each layer in each."""
    return round(GRAPH_BYTES + sizes * model.layers * GRAPH_BYTES_PER_LAYER) if sizes else 0


def _guesses(
    model: ModelFacts, gpu: GpuFacts, rules: EngineRules, context_bytes: float, sizes: int
) -> tuple[str, ...]:
    """What of the memory is a constant rather than a shape, in sentences."""
    found = [
        f"CUDA context and communication take {context_bytes / GIB:.2f} GiB of each GPU, "
        "as in logs of H100 (a guess elsewhere)",
        f"{HIDDEN_COPIES:g} copies of the hidden states and {OTHER_PEAK_BYTES / GIB:.2f} GiB are "
        "held beside the tensors of an MLP in the dummy pass (set on logs)",
        f"sampling holds {rules.logit_bytes:g} bytes for each logit in the dummy pass"
        + (", by vLLM's source" if rules.logit_bytes == GUMBEL_BYTES else " (set on logs)"),
    ]
    if sizes:
        found.append(
            f"CUDA graphs take {GRAPH_BYTES / GIB:.1f} GiB and {GRAPH_BYTES_PER_LAYER / 2**20:g} "
            "MiB for each layer and captured size (a guess)"
        )
    if gpu.usable_bytes is None:
        found.append(f"the driver reports {USABLE_SHARE:.0%} of the memory of {gpu.name} (a guess)")
    if model.expert_format == "mxfp4":
        found.append(f"experts in mxfp4 are padded to multiples of {MXFP4_MULTIPLE} hidden units")
    if any(kind.mixer.kv_heads == 1 and kind.mixer.heads == 1 for kind in model.layer_kinds):
        found.append("projections of the latent attention are counted as split over the GPUs")
    return tuple(found)
