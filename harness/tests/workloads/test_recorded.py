"""Recorded requests: every published format, and what becomes of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.predictors.recorded import Recorded
from harness.tests.support.data import DATA
from harness.tests.support.recorded_requests import HEADER, MODEL, trace
from harness.workloads.arrivals import ClosedLoop
from harness.workloads.workload import Workload

OTHER = "opt-1.3b"

PUBLISHED = {
    "azure.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    ),
    "azure2024.csv": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,374,44\n2024-05-10 00:00:04.324509+00:00,396,109\n"
    ),
    "mooncake.jsonl": (
        '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": [0]}\n'
        '{"timestamp": 4314.579, "input_length": 396, "output_length": 109, "hash_ids": [0]}\n'
    ),
    "burst.csv": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,374,44,418,Conversation log\n6,GPT-4,300,0,300,API log\n"
        "9.314579,GPT-4,396,109,505,Conversation log\n"
    ),
    "servegen.csv": (
        "request_id,timestamp,input_tokens,output_tokens\n0,0.0,374,44\n1,4.314579,396,109\n"
    ),
    "qwen.jsonl": (
        '{"chat_id": 0, "parent_chat_id": -1, "timestamp": 0, "input_length": 374, '
        '"output_length": 44, "type": "text", "turn": 1, "hash_ids": [0]}\n'
        '{"chat_id": 1, "parent_chat_id": 0, "timestamp": 4.314579, "input_length": 396, '
        '"output_length": 109, "type": "text", "turn": 2, "hash_ids": [0]}\n'
    ),
    "vidur.csv": (
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n"
    ),
    "splitwise.csv": (
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
        "\n0,2,0,0,1,374,44\n1,2,0,4.314579,1,396,109\n"
    ),
    "llmservingsim.jsonl": (
        '{"input_toks": 374, "output_toks": 44, "arrival_time_ns": 0, "input_tok_ids": [1]}\n'
        '{"input_toks": 396, "output_toks": 109, "arrival_time_ns": 4314579000}\n'
    ),
    "own.csv": f"{HEADER}\n0,374,44\n4.314579,396,109\n",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_traces_are_read_as_they_are(
    name: str, written: Callable[[str, str], Path]
) -> None:
    load = trace(written(name, PUBLISHED[name])).build(0)
    assert load.arrival_s == pytest.approx([0.0, 4.314579], abs=1e-9)
    assert load.prompt_tokens.tolist() == [374, 396]
    assert load.output_tokens.tolist() == [44, 109]
    assert str(trace(written(name, PUBLISHED[name]))._path) in load.datasets


def test_named_columns_are_read_in_their_unit(written: Callable[[str, str], Path]) -> None:
    """Others are left out."""
    text = '{"at_ms": 0, "input_length": 374, "out": 44, "extra": 1}\n'
    text += '{"at_ms": 4314.579, "input_length": 396, "out": 109, "extra": 2}\n'
    columns = {"arrival_s": "at_ms", "prompt_tokens": "input_length", "output_tokens": "out"}
    load = trace(written("a.jsonl", text), columns={**columns, "unit": "ms"}).build(0)
    assert load.arrival_s == pytest.approx([0.0, 4.314579], abs=1e-9)
    assert load.prompt_tokens.tolist() == [374, 396]
    assert load.output_tokens.tolist() == [44, 109]


def test_texts_of_aiperf_come_in_milliseconds(written: Callable[[str, str], Path]) -> None:
    row = '{"timestamp": %d, "text_input": "a b c d e", "output_length": 9}\n'
    load = trace(written("a.jsonl", row % 0 + row % 1500)).build(0)
    assert load.arrival_s.tolist() == [0.0, 1.5]
    assert load.texts == ("a b c d e",) * 2


def test_a_batch_of_servegen_comes_at_once(written: Callable[[str, str], Path]) -> None:
    row = (
        '{"request_id": %d, "type": "text", "input_length": 61, "output_length": 9, "duration": 1}'
    )
    load = trace(written("trace_d.jsonl", f"{row % 0}\n{row % 1}\n")).build(0)
    assert load.arrival_s.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("file", "count", "mean"),
    [("azure_llm_2023/conv.csv.gz", 19366, 211), ("mooncake/synthetic.csv.gz", 3993, 149)],
)
def test_stored_samples_are_read(file: str, count: int, mean: float) -> None:
    """Numbers of requests and mean answers as their authors state them."""
    if not (DATA / file).is_file():
        pytest.skip(f"the measurements are not in {DATA / file}")
    load = trace(DATA / file, model="Mixtral-8x7B-v0.1", too_long="cut", max_output_tokens=2000)
    built = load.build(0)
    assert len(built) == count
    assert built.output_tokens.mean() == pytest.approx(mean, rel=0.01)


def test_columns_of_ones_own_reach_the_requests(own: Callable[..., Path]) -> None:
    """The second and third request are of one application, whose number tells nothing ahead."""
    load = trace(
        own(
            {"service": MODEL, "tenant": "b", "app": 9, "deadline_s": 4.0, "predicted_tokens": 7},
            {"arrival_s": 1, "service": "chat", "tenant": "a", "app": 3, "predicted_tokens": 2.4},
            {"arrival_s": 2, "service": MODEL, "tenant": "b", "app": 3, "predicted_tokens": 0.2},
        ),
        model=None,
        services={"chat": OTHER},
    ).build(0)
    facts = [load.facts(row) for row in range(3)]
    assert [str(it.service) for it in facts] == [MODEL, OTHER, MODEL]
    assert [it.tenant for it in facts] == ["b", "a", "b"]
    assert [it.app for it in facts] == [0, 1, 1]
    assert [it.deadline_s for it in facts] == [4.0, None, None]
    predictor = Recorded().of(load, 0)
    assert [predictor.predict(it)[0].samples_tokens for it in facts] == [(7,), (2,), (1,)]


def test_texts_stand_for_prompt_tokens(written: Callable[[str, str], Path]) -> None:
    file = written("t.jsonl", '{"arrival_s": 0, "output_tokens": 3, "prompt": "a b c d e"}\n')
    load = trace(file).build(0)
    assert load.texts == ("a b c d e",)
    assert load.prompt_tokens.tolist() == [7]  # 1.40554 tokens a word


def test_a_window_counts_anew_and_a_scale_makes_dense(own: Callable[..., Path]) -> None:
    """Of requests at 0, 2, 4 and 6 s those in [2, 6) at twice the rate: at 0 and 1 s."""
    file = own(*({"arrival_s": at, "deadline_s": at + 3} for at in (0, 2, 4, 6)))
    load = trace(file, window=[2, 6], rate_scale=2.0).build(0)
    assert load.arrival_s.tolist() == [0.0, 1.0]
    assert load.deadline_s.tolist() == [3.0, 4.0]
    assert len(trace(file, requests=3).build(0)) == 3


def test_limits_say_nothing_of_true_lengths(own: Callable[..., Path]) -> None:
    def limits(outputs: list[int], **changes: Any) -> list[int]:
        load = trace(own(*({"output_tokens": n} for n in outputs)), **changes).build(0)
        return [int(limit) for limit in load.max_output_tokens]

    assert limits([5, 900]) == limits([900, 5]) == [4086, 4086]
    assert limits([5, 900], max_output_tokens=1000) == [1000, 1000]


def test_what_is_too_long_is_refused_cut_or_dropped(own: Callable[..., Path]) -> None:
    file = own({}, {"prompt_tokens": 5000}, {"output_tokens": 200})
    with pytest.raises(ValueError, match=r"row 2: 5000 prompt and 5 output tokens exceed") as said:
        trace(file, max_output_tokens=100)
    assert str(said.value).count("the context of 4096, of which answers have 100") == 1

    def lengths(load: Workload) -> list[tuple[int, int]]:
        return list(zip(load.prompt_tokens.tolist(), load.output_tokens.tolist(), strict=True))

    cut = trace(file, max_output_tokens=100, too_long="cut").build(0)
    assert lengths(cut) == [(10, 5), (3996, 5), (10, 100)]
    dropped = trace(file, max_output_tokens=100, too_long="drop").build(0)
    assert lengths(dropped) == [(10, 5)]


def test_a_predictor_of_what_was_not_predicted_is_refused(own: Callable[..., Path]) -> None:
    load = trace(own({"predicted_tokens": 3}, {"predicted_tokens": None})).build(0)
    with pytest.raises(ValueError, match="lacks predicted_tokens; request 1 is the first"):
        Recorded().of(load, 0)
    with pytest.raises(ValueError, match=r"lacks predicted_tokens$"):
        Recorded().of(trace(own({})).build(0), 0)


def test_parquet_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    columns = {"arrival_s": [0.0, 1.0], "prompt_tokens": [3, 4], "output_tokens": [1, 2]}
    pd.DataFrame(columns).to_parquet(file)
    load = trace(file).build(7)
    assert np.array_equal(load.prompt_tokens, [3, 4])


def test_clients_take_the_rows_in_order(tmp_path: Path) -> None:
    """The times of the file are not used; what is on their clock is refused."""
    file = tmp_path / "own.csv"
    file.write_text(f"{HEADER}\n0,3,4\n5,6,7\n9,8,2\n")
    arrivals = ClosedLoop(clients=1, ramp_up_s=0.0, think_s=0.25)
    load = trace(file, arrivals=arrivals, starts_s=2.0).build(0)
    assert load.arrival_s.tolist() == [2.0, np.inf, np.inf]
    assert (load.prompt_tokens.tolist(), load.think_s) == ([3, 6, 8], 0.25)
    with pytest.raises(ValueError, match="rate_scale=2 has no meaning in a closed loop"):
        trace(file, arrivals=arrivals, rate_scale=2.0)
    file.write_text(f"{HEADER},deadline_s\n0,3,4,9\n5,6,7,12\n")
    with pytest.raises(ValueError, match="has deadlines, which are times, and in a closed loop"):
        trace(file, arrivals=arrivals)
