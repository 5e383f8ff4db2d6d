"""Blocks of equal bytes for models of different shape."""

from dataclasses import dataclass

import pytest

from harness.engines.vllm.shared_blocks import equal_blocks, ledger_of
from harness.interface.entities import Service, ServiceId
from harness.tests.support.shared import SHARED

M0, M1 = ServiceId("m0"), ServiceId("m1")
SERVICES = [Service(M0, 1, 256), Service(M1, 1, 256)]


@dataclass
class Blocks:
    """A scheduler of vLLM, as far as its blocks go."""

    block_size: int
    kv_bytes_per_token: int
    kv_blocks: int = 10


@pytest.mark.parametrize(
    ("token_bytes", "tokens"),
    [([2048, 2048], [32, 32]), ([2048, 1536], [96, 128]), ([1024, 4096, 512], [128, 32, 256])],
)
def test_tokens_are_the_fewest_with_equal_bytes(token_bytes: list[int], tokens: list[int]) -> None:
    assert equal_blocks(token_bytes, ["a", "b", "c"], least_tokens=32) == tokens


def test_models_without_a_common_layout_are_refused_with_the_numbers() -> None:
    with pytest.raises(
        ValueError,
        match=r"^no common layout of KV blocks: a has 2048 bytes of KV a token, b has 1984 bytes"
        r" of KV a token, so equal blocks would have 1024 tokens, at most 512 are allowed$",
    ):
        equal_blocks([2048, 1984], ["a", "b"], least_tokens=32)


def test_the_ledger_counts_the_blocks_of_the_pool() -> None:
    kv = ledger_of({M0: Blocks(96, 2048), M1: Blocks(128, 1536)}, SERVICES)
    assert [kv.capacity_blocks(service) for service in (M0, M1)] == [10, 10]
    assert [kv.uncommitted_tokens(service) for service in (M0, M1)] == [960, 1280]
    with pytest.raises(ValueError, match=r"have different bytes: {'m0': 65536, 'm1': 49152}"):
        ledger_of({M0: Blocks(32, 2048), M1: Blocks(32, 1536)}, SERVICES)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kv_blocks": None}, "engine.kv_blocks=null: m0, m1 share blocks, say how many"),
        ({"prefix_caching": True}, "engine.prefix_caching=true: m0, m1 share blocks, and equal"),
    ],
)
def test_what_services_cannot_share_is_refused_before_the_run(
    given: dict[str, object], problem: str
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    from harness.tests.support.real_engine import engine

    with pytest.raises(ValueError, match=problem):
        engine(**given).settings(SERVICES, SHARED)
