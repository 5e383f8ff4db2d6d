"""What comes from a hub is a commit of it."""

import huggingface_hub
import pytest

from harness.config.hub import model_folder, pinned

REVISION = "89abcdef01" * 4


def test_a_name_with_its_commit_is_taken_apart() -> None:
    assert pinned("key", f"some/model@{REVISION}") == ("some/model", REVISION)


@pytest.mark.parametrize(
    "text",
    ["some/model", "some/model@main", f"some/model@{REVISION[:39]}", f"@{REVISION}", ""],
)
def test_a_name_that_may_mean_something_else_tomorrow_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME@REVISION") as raised:
        pinned("engine.models.chat", text)
    assert str(raised.value).startswith(f"engine.models.chat={text} must be")


def test_a_model_is_asked_for_by_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, revision: str) -> str:
        assert (name, revision) == ("some/model", REVISION)
        return "/cache/some-model"

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert model_folder("key", f"some/model@{REVISION}") == "/cache/some-model"


def test_a_hub_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, revision: str) -> str:
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ValueError, match=r"^key=.* had from the hub \(ConnectionError\)$"):
        model_folder("key", f"some/model@{REVISION}")
