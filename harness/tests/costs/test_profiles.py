"""A folder of costs that says what no machine does is refused, with file, key and value."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.config import inputs
from harness.config.paths import PROFILES
from harness.costs.model import PARTS, ProfileCosts
from harness.costs.profiles import CALIBRATION, calibration_path, holds_profiles, read_profiles
from harness.costs.roofline import read_calibration

MODEL = "vicuna-13b-v1.5.json"
Content = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Costs of one model, to be changed."""
    for name in (MODEL, CALIBRATION):
        shutil.copy(PROFILES / "a100_80g_vllm_0_3" / name, tmp_path)
    return tmp_path


def changed(path: Path, change: Callable[[Content], object]) -> None:
    """Write a file again with a change."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _one(content: Content) -> Content:
    size: Content = content["tensor_parallel"]["1"]
    return size


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda it: _one(it).update(load_s=-1.0), r"tensor_parallel\.1\.load_s=-1\.0: it must be"),
        (lambda it: _one(it).update(received_s=[-1e-4, 0.0]), r"received_s.*-0\.0001"),
        (lambda it: _one(it).update(loads_s=1.0), r"there is no key tensor_parallel\.1\.loads_s"),
        (
            lambda it: _one(it)["decode"]["forward"]["base_s"].__setitem__(3, -0.01),
            r"decode\.forward\.base_s\[3\]=-0\.01: it must be",
        ),
        (
            lambda it: _one(it)["decode"]["forward"]["base_s"].pop(),
            r"decode\.forward\.base_s has 16 values for 17 knots",
        ),
        (lambda it: _one(it)["decode"].pop("sample"), r"decode has no sample"),
        (lambda it: it["knots_requests"].reverse(), r"knots_requests=.* ascending"),
        (lambda it: it.pop("gpu"), r"gpu is missing"),
        (lambda it: it.update(tensor_parallel={"x": {}}), r"tensor_parallel\.x"),
        (lambda it: _one(it)["step_s"].__setitem__(0, -9.0), r"takes below 0 s"),
        (lambda it: _one(it)["valid"].update(longest=[5, 1]), r"valid\.longest=\[5, 1\]"),
    ],
)
def test_a_profile_that_cannot_be_is_refused(
    folder: Path, change: Callable[[Content], object], said: str
) -> None:
    changed(folder / MODEL, change)
    with pytest.raises(ValueError, match=said) as raised:
        read_profiles(folder)
    assert str(raised.value).startswith(str(folder / MODEL))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda it: it.update(memory_eficiency=0.5), r"there is no key memory_eficiency"),
        (lambda it: it["load_start_s"].pop("1"), r"load_start_s has no tensor parallel size 1"),
        (lambda it: it["knots_requests"].pop(), r"overheads\.1\.\w+\.\w+\.\w+ has 9 values for 8"),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(
    folder: Path, change: Callable[[Content], object], said: str
) -> None:
    changed(folder / CALIBRATION, change)
    with pytest.raises(ValueError, match=said) as raised:
        read_calibration(folder)
    assert str(raised.value).startswith(str(folder / CALIBRATION))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model": "x"', "line 1 is not JSON"),
        ('{"model": "x", "model": "y"}', "the key model is there twice"),
        ("[" * 100_000, "is nested too deeply"),
        ("5", "5: "),
    ],
)
def test_a_file_that_is_no_json_is_named(folder: Path, text: str, said: str) -> None:
    (folder / MODEL).write_text(text)
    with pytest.raises(ValueError, match=said) as raised:
        read_profiles(folder)
    assert str(raised.value).startswith(str(folder / MODEL))


def test_costs_of_a_wrong_gpu_are_not_the_rooflines(folder: Path) -> None:
    changed(folder / MODEL, lambda it: it.update(gpu="H100-80G"))
    with pytest.raises(ValueError, match=r"holds costs of H100-80G, not of hardware\.gpu=A100-80G"):
        ProfileCosts(gpu="A100-80G", profile_dir=str(folder), memory_share=0.9, parts=PARTS)


@pytest.mark.parametrize("own", filter(holds_profiles, sorted(PROFILES.iterdir())), ids=str)
def test_our_own_folders_are_all_read(own: Path) -> None:
    assert read_calibration(own).block_tokens >= 1
    assert all(profile.gpu for profile in read_profiles(own).values())


def test_a_folder_without_a_roofline_has_the_one_of_all_engines(folder: Path) -> None:
    shared = PROFILES / "roofline" / CALIBRATION
    assert calibration_path(folder) == folder / CALIBRATION
    (folder / CALIBRATION).unlink()
    assert calibration_path(folder) == shared
    assert read_calibration(folder) == read_calibration(shared.parent)
    costs = ProfileCosts(gpu="A100-80G", profile_dir=str(folder), memory_share=0.9, parts=PARTS)
    assert {inputs.name_of(path) for path in (shared, folder / MODEL)} < set(
        costs.files([MODEL.removesuffix(".json")])
    )
