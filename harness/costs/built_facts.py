"""Facts of a model whose family is not written down, from its class in `transformers`.

`python -m harness.costs.built_facts CONFIG` builds the class without memory, reads the layers by
the shapes of their weights and stores the facts below `harness/profiles/model_facts`, by a digest
of the config. From then on the config is known, also where `transformers` is not installed.
"""

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

from harness.config.paths import PROFILES
from harness.config.schema import read_json
from harness.costs.config_reader import NO_SIZES
from harness.costs.layer_kinds import LayerKind, Mixer, Mlp

STORED = PROFILES / "model_facts"
NO_LAYERS = {"quantization_config", "compression_config", "torch_dtype", "dtype", "architectures"}
"""Keys that do not change layers, beside `NO_SIZES`."""
ATTENTION = re.compile(r"^(self_attn|attn|attention|self_attention)[.]")
OUTPUT = ("o_proj", "out_proj", "dense", "c_proj", "wo")
FUSED = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv")
MLP = re.compile(r"mlp|feed_forward|ffn|moe|experts|block_sparse")
ROUTER = re.compile(r"router|(^|[.])gate[.]|classifier|(^|[.])wg[.]")
SHARED = re.compile("shared")
GENERATES = "AutoModelFor" + "CausalLM"
"""The class of `transformers` with an output over the vocabulary."""
WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
PER_TOKEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k")
Shapes = dict[str, tuple[int, ...]]


def stored_path(config: Mapping[str, Any]) -> Path:
    """Where the facts of a config are kept."""
    left_out = NO_SIZES | NO_LAYERS
    kept = {key: value for key, value in config.items() if key not in left_out}
    text = json.dumps(kept, sort_keys=True)
    return STORED / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def stored_facts(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Fields of `ModelFacts` that were stored of a config; None where there are none."""
    path = stored_path(config)
    return read_json(path, dict[str, Any]) if path.is_file() else None


def built_facts(path: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `ModelFacts` by the class of a config, as the families give them.

    Raises ValueError for a class that `transformers` lacks and for layers that are not modelled.
    """
    import torch
    import transformers

    kind = config["model_type"]
    if kind not in transformers.CONFIG_MAPPING:
        raise ValueError(f"{path}: transformers has no class of the model_type {kind!r:.60}")
    known: Any = transformers.CONFIG_MAPPING[kind].from_dict(dict(config))
    try:
        with torch.device("meta"):
            model = getattr(transformers, GENERATES).from_config(known)
    except ValueError:
        raise ValueError(f"{path}: {kind!r:.60} has no class that generates text") from None
    lists = [one for one in model.modules() if isinstance(one, torch.nn.ModuleList)]
    layers = max(lists, key=lambda one: sum(each.numel() for each in one.parameters()))
    shapes = [
        {name: tuple(each.shape) for name, each in layer.named_parameters()} for layer in layers
    ]
    found = Counter(_layer(path, known, each, at) for at, each in enumerate(shapes))
    fields = _fields(path, known, found, all(map(_is_gated, shapes)))
    return fields | {"parameters": sum(each.numel() for each in model.parameters())}


def _fields(
    path: Path, known: Any, found: Mapping[tuple[Mixer, Mlp, int], int], gated: bool
) -> dict[str, Any]:
    kinds = [
        LayerKind(layers=count, mixer=mixer, mlp=mlp, norm_parameters=norms)
        for (mixer, mlp, norms), count in found.items()
    ]
    most = max((kind.mlp for kind in kinds), key=lambda mlp: mlp.experts)
    routed = max(kind.mlp.expert_parameters for kind in kinds)
    width = routed or max(kind.mlp.dense_parameters for kind in kinds)
    matrices = (3 if gated else 2) * known.hidden_size
    heads = known.num_attention_heads
    kept = [kind.mixer.kv_heads for kind in kinds]
    return {
        "layers": sum(kind.layers for kind in kinds),
        "hidden_size": known.hidden_size,
        "attention_heads": heads,
        "kv_heads": max(kept) if heads % max(kept) == 0 else 1,
        "head_dim": _head_dim(known),
        "vocab_size": known.vocab_size,
        "max_context_tokens": getattr(known, "max_position_embeddings", None) or 2048,
        "intermediate_size": max(1, width // matrices),
        "gated_mlp": gated,
        "embeddings": 1 if known.tie_word_embeddings else 2,
        "experts": most.experts or 1,
        "experts_per_token": most.experts_per_token or 1,
        "kinds": [asdict(kind) for kind in kinds],
        "source": f"built from the class of {path.name} in transformers",
    }


def _layer(path: Path, known: Any, shapes: Shapes, at: int) -> tuple[Mixer, Mlp, int]:
    """A layer by its weights: attention, an MLP or a mixture, norms. ValueError names others."""
    attention = {name: shape for name, shape in shapes.items() if ATTENTION.search(name)}
    rest = {name: shape for name, shape in shapes.items() if name not in attention}
    norms = sum(prod(shape) for shape in rest.values() if len(shape) == 1)
    matrices = {name: shape for name, shape in rest.items() if len(shape) > 1}
    for name in matrices:
        if not MLP.search(name):
            raise ValueError(f"{path}: layers with {name.partition('.')[0]!r} are not modelled")
    if not attention:
        raise ValueError(f"{path}: layers without attention are not modelled")
    return _mixer(path, known, attention, at), _mlp(known, matrices), norms


def _mixer(path: Path, known: Any, shapes: Shapes, at: int) -> Mixer:
    """Attention with heads of keys and values, or with a latent."""
    wide = {name.split(".")[-2]: shape for name, shape in shapes.items() if len(shape) == 2}
    output = next((wide[name] for name in OUTPUT if name in wide), None)
    is_nested = any(name.count(".") > 2 for name, shape in shapes.items() if len(shape) > 1)
    if output is None or len(wide) < 2 or is_nested:
        raise ValueError(f"{path}: attention of {', '.join(wide) or 'no matrices'} is not modelled")
    parameters = sum(prod(shape) for shape in wide.values())
    other = sum(prod(shape) for shape in shapes.values()) - parameters
    if "kv_a_proj_with_mqa" in wide:
        queries = wide["q_b_proj" if "q_b_proj" in wide else "q_proj"][0]
        return Mixer(
            parameters=parameters,
            other_parameters=other,
            heads=1,
            kv_heads=1,
            kv_numbers_per_head=wide["kv_a_proj_with_mqa"][0],
            attended_width=(queries + output[1]) // 2,
        )
    size, width = _head_dim(known), output[1]
    fused = next((wide[name][0] for name in FUSED if name in wide), 0)
    keys = wide["k_proj"][0] if "k_proj" in wide else (fused - width) // 2
    if keys < 1 or keys % size or width % size:
        raise ValueError(f"{path}: attention of {', '.join(sorted(wide))} is not modelled")
    return Mixer(
        parameters=parameters,
        other_parameters=other,
        heads=width // size,
        kv_heads=keys // size,
        kv_numbers_per_head=2 * size,
        attended_width=width,
        window_tokens=_window(path, known, at),
    )


def _window(path: Path, known: Any, at: int) -> int:
    """Tokens of the window of a layer; 0 is none."""
    types = getattr(known, "layer_types", None)
    if types is None:
        used = getattr(known, "use_sliding_window", True)
        return int(getattr(known, "sliding_window", None) or 0) if used else 0
    if types[at] not in ("full_attention", *WINDOWS):
        raise ValueError(f"{path}: layers of the type {types[at]!r} are not modelled")
    return int(getattr(known, WINDOWS.get(types[at], ""), None) or 0)


def _mlp(known: Any, matrices: Shapes) -> Mlp:
    """Experts are weights of three dimensions."""
    routed = {name: shape for name, shape in matrices.items() if len(shape) == 3}
    if not routed:
        return Mlp(dense_parameters=sum(map(prod, matrices.values())))
    experts = max(shape[0] for shape in routed.values())
    flat = {name: shape for name, shape in matrices.items() if name not in routed}
    router = sum(prod(shape) for name, shape in flat.items() if _routes(name, shape, experts))
    per_token = next(getattr(known, key) for key in PER_TOKEN if getattr(known, key, None))
    return Mlp(
        shared_parameters=sum(map(prod, flat.values())) - router,
        router_parameters=router,
        experts=experts,
        experts_per_token=per_token if isinstance(per_token, int) else max(per_token),
        expert_parameters=sum(map(prod, routed.values())) // experts,
    )


def _is_gated(shapes: Shapes) -> bool:
    """Whether the MLP of a layer is not of two matrices alone."""
    flat = [shape for name, shape in shapes.items() if MLP.search(name) and len(shape) == 2]
    return not (len(flat) == 2 and flat[0] == flat[1][::-1])


def _routes(name: str, shape: tuple[int, ...], experts: int) -> bool:
    return bool(ROUTER.search(name)) and experts in shape and not SHARED.search(name)


def _head_dim(known: Any) -> int:
    stated = getattr(known, "head_dim", None)
    return int(stated or known.hidden_size // known.num_attention_heads)


def main() -> None:
    """Store the facts of a config, and print where."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=Path, help="a config.json")
    path: Path = parser.parse_args().config
    try:
        config = read_json(path, dict[str, Any])
        facts = built_facts(path, config)
    except (ImportError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    stored = stored_path(config)
    stored.parent.mkdir(exist_ok=True)
    stored.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    print(f"{facts['parameters']:,} parameters: {stored}")


if __name__ == "__main__":
    main()
