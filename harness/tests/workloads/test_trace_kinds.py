"""Published files whose rows are no columns of times and lengths yet."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.tests.support.recorded_requests import trace
from harness.workloads.arrivals import Gamma

Write = Callable[[str, str], Path]
DRAWN = Gamma(rate_per_s=2.0, burstiness=1.0, sorted_gaps=False)

SHAREGPT = json.dumps(
    [
        {"id": "c0", "conversations": [{"from": "human", "value": "How do tides work?"}]},
        {
            "id": "c1",
            "conversations": [
                {"from": "human", "value": "How do tides work?"},
                {"from": "gpt", "value": "The moon pulls the sea and the sea follows."},
                {"from": "human", "value": "Thanks"},
            ],
        },
    ],
    indent=1,
)
BENCH = '{"prompt": "How do tides work?", "output_tokens": 12}\n'
GUIDELLM = '{"prompt": "How do tides work?", "prompt_tokens_count": 6, "output_tokens_count": 12}\n'
BATCH = json.dumps(
    {
        "custom_id": "r0",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {
            "model": "any",
            "messages": [{"role": "user", "content": "How do tides work?"}],
            "max_completion_tokens": 12,
        },
    }
)


@pytest.mark.parametrize(
    ("name", "text", "prompt_tokens", "output_tokens"),
    [
        ("sharegpt.json", SHAREGPT, 6, 13),
        ("custom.jsonl", BENCH, 6, 12),
        ("guidellm.jsonl", GUIDELLM, 6, 12),
        ("batch.jsonl", BATCH, 6, 12),
    ],
)
def test_a_file_without_times_has_drawn_ones(
    name: str, text: str, prompt_tokens: int, output_tokens: int, written: Write
) -> None:
    """Words are counted by the shipped ratio: 4 are 6 tokens, 9 are 13."""
    file = written(name, text)
    with pytest.raises(ValueError, match=r"does not say when its requests come: say workload/arr"):
        trace(file)
    recipe = trace(file, arrivals=DRAWN)
    one, other = recipe.build(0), recipe.build(1)
    assert not recipe.is_replay
    assert one.prompt_tokens.tolist() == [prompt_tokens]
    assert one.output_tokens.tolist() == [output_tokens]
    assert one.arrival_s[0] != other.arrival_s[0]
    assert any("no reuse was assumed" in note for note in one.notes)


def test_conversations_without_an_answer_are_said(written: Write) -> None:
    load = trace(written("sharegpt.json", SHAREGPT), arrivals=DRAWN).build(0)
    assert "sharegpt.json: 1 of 2 conversations have no answer" in load.notes


SESSIONS = (
    '{"session_id": "s1", "timestamp": 0, "input_length": 300, "output_length": 40}\n'
    '{"session_id": "s2", "timestamp": 500, "input_length": 200, "output_length": 20}\n'
    '{"session_id": "s1", "delay": 2000, "input_length": 400, "output_length": 50}\n'
)


def test_a_later_turn_waits_for_the_answer_and_its_delay(written: Write) -> None:
    """Its prompt is the first turn's 300 tokens, the answer's 40, and 400 of its own."""
    load = trace(written("a.jsonl", SESSIONS)).build(0)
    assert load.apps is not None
    turns = ~load.apps.outside
    assert sorted(load.prompt_tokens[turns]) == [200, 300, 740]
    (last,) = np.flatnonzero(load.prompt_tokens == 740)
    (pause,) = np.flatnonzero(load.apps.outside)
    assert load.apps.external_s[pause] == 2.0
    pairs = list(zip(load.edges.parent.tolist(), load.edges.child.tolist(), strict=True))
    (first,) = np.flatnonzero(load.prompt_tokens == 300)
    assert sorted(pairs) == sorted([(first, pause), (pause, last)])
    assert (load.prefix[last], load.prefix_tokens[last]) == (first, 340)
    assert load.arrival_s[load.prompt_tokens == 200].tolist() == [0.5]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"session_id": "s1", "timestamp": 9, "input_length": 4, "output_length": 4}', "has no d"),
        ('{"session_id": "s3", "delay": 9, "input_length": 4, "output_length": 4}', "no timestamp"),
    ],
)
def test_turns_without_a_time_are_refused(row: str, said: str, written: Write) -> None:
    with pytest.raises(ValueError, match=f"row 4: .*{said}"):
        trace(written("a.jsonl", SESSIONS + row + "\n"))


BLIS = (
    "request_id,client_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,"
    "prefix_length,streaming,input_tokens,output_tokens,arrival_time_us,status\n"
    "0,c,a,critical,0,,0,sys,100,true,40,9,0,ok\n"
    "1,c,b,batch,5,,0,sys,100,true,60,9,1500000,ok\n"
    "2,c,b,batch,5,,0,,0,true,60,9,1600000,error\n"
)


def test_blis_traces_have_microseconds_prefixes_and_priorities(written: Write) -> None:
    load = trace(written("trace.csv", BLIS)).build(0)
    assert load.arrival_s.tolist() == [0.0, 1.5]
    assert load.prompt_tokens.tolist() == [140, 160]
    assert (load.prefix.tolist(), load.prefix_tokens.tolist()) == ([-1, 0], [0, 100])
    assert load.priority.tolist() == [0, 5]
    assert [load.facts(row).priority for row in (0, 1)] == [0, 5]
    assert "trace.csv: 1 of 3 records were not answered and are left out" in load.notes


def test_what_is_too_long_for_the_kv_is_told_with_both_numbers(written: Write) -> None:
    """100 prompt and 20 answer tokens take 8 blocks of 16 tokens, as the last one has no KV."""
    row = '{"arrival_s": %g, "prompt_tokens": %d, "output_tokens": 20}\n'
    file = written("a.jsonl", row % (0, 10) + row % (1, 100))
    with pytest.raises(ValueError, match=r"row 2: .* 8 blocks of 16 tokens, there are 7"):
        trace(file, kv_room=lambda _: (7, 16))
    assert len(trace(file, kv_room=lambda _: (8, 16)).build(0)) == 2
    load = trace(file, kv_room=lambda _: (7, 16), too_long="drop").build(0)
    assert load.prompt_tokens.tolist() == [10]
    assert (
        "a.jsonl: 1 of 2 requests are too long and left out, rows 2: 1 exceed the KV of a group, "
        "7 blocks of 16 tokens" in load.notes
    )
    cut = trace(file, kv_room=lambda _: (7, 16), too_long="cut").build(0)
    assert (cut.prompt_tokens + cut.output_tokens).max() <= 113
