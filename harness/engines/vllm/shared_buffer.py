"""One buffer for the KV of several engines of this process.

Their layout has the block as its outermost dimension, and their blocks have equal bytes: a block is
the same bytes for every engine, which belong to the engine that has taken it from the common pool.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from vllm import __version__ as vllm_version
from vllm.v1.worker import gpu_model_runner

ALLOCATES = "allocate_kv_cache"
"""The function of vLLM 0.32 that allocates the KV of an engine; 0.26 has none."""
BLOCK_BY_BLOCK = "BLHNC"
"""vLLM's name of the layout whose outermost dimension is the block."""


@dataclass(slots=True)
class _OneBuffer:
    """Stands for vLLM's `allocate_kv_cache`: what is allocated first is used by all."""

    allocate: Any
    buffer: torch.Tensor | None = None

    def __call__(self, config: Any, device: Any, *more: Any) -> dict[str, torch.Tensor]:
        """Views of the buffer, by layer, as vLLM would have them of one of its own."""
        size_bytes = config.kv_cache_tensors[0].size
        if self.buffer is None:
            self.buffer = torch.zeros(size_bytes, dtype=torch.int8, device=device)
        if size_bytes != len(self.buffer):
            raise ValueError(
                f"engines that share KV have {len(self.buffer)} bytes of it, one needs {size_bytes}"
            )
        storage = self.buffer.untyped_storage()
        # On this device a tensor has a shape and no memory.
        views = self.allocate(config, torch.device("meta"), *more)
        return {
            name: torch.empty(0, dtype=view.dtype, device=device).set_(
                storage, view.storage_offset(), view.shape, view.stride()
            )
            for name, view in views.items()
        }


@contextmanager
def one_buffer(buffer: torch.Tensor | None) -> Iterator[_OneBuffer]:
    """Engines built meanwhile have their KV in the same memory, in `buffer` if there is one.

    Raises ValueError where this vLLM does not allocate by a function that can be replaced.
    """
    own = getattr(gpu_model_runner, ALLOCATES, None)
    if own is None:
        raise ValueError(
            f"vLLM {vllm_version} has no function {ALLOCATES}, which services of one group need to"
            " share KV: give each service a group of its own"
        )
    shared = _OneBuffer(own, buffer)
    setattr(gpu_model_runner, ALLOCATES, shared)
    try:
        yield shared
    finally:
        setattr(gpu_model_runner, ALLOCATES, own)
    if shared.buffer is None:
        raise RuntimeError("this vLLM has allocated the KV of engines that share it by itself")
