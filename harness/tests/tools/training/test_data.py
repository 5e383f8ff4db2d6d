"""A user's own prompts as training data."""

from pathlib import Path

import pytest

from harness.tools.training.data import read_prompts


def test_own_prompts_are_read(tmp_path: Path) -> None:
    """A text or the turns of a conversation; prompt tokens are counted where they are not given."""
    file = tmp_path / "mine.jsonl"
    file.write_text(
        '{"prompt": "Why is it so?", "response_tokens": 30}\n'
        '{"prompt": ["Hello", "Hi", "And now?"], "response_tokens": 4}\n'
    )
    found, files = read_prompts(file)
    assert found["prompt"].tolist() == ["Why is it so?", "Hello\nHi\nAnd now?"]
    assert found["tokens"].tolist() == [30, 4]
    assert (found["prompt_tokens"] >= 4).all()
    assert set(found["source"]) == {"mine"}
    assert list(files) == ["mine.jsonl"]
    file.write_text('{"prompt": "Why?"}\n')
    with pytest.raises(ValueError, match="has no column response_tokens, but prompt"):
        read_prompts(file)
    with pytest.raises(ValueError, match=r"^--prompts=.*none\.csv is no file"):
        read_prompts(tmp_path / "none.csv")
