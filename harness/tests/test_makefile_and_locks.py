"""Locks hold pins with hashes and nothing else; make's help is complete."""

import os
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from harness.config.paths import ROOT
from harness.tests.support.paths import HARD
from harness.tests.support.sources import imported_at_once, is_test, python_files

NAMES = ("base", "dev", "train", "vllm-cpu", "vllm-gpu", "gpu-pack", "tools", "peer")
LOCKS = tuple(f"{it}.txt" for it in NAMES)
PIN = re.compile(
    r"([a-z0-9]+(?:-[a-z0-9]+)*)==([0-9][A-Za-z0-9.!+]*)((?: --hash=sha256:[0-9a-f]{64})+)"
)


# These tests may themselves run below make, whose settings a make of theirs would inherit.
OUTSIDE = {name: value for name, value in os.environ.items() if "MAKE" not in name}


def pinned(name: str) -> dict[str, str]:
    """Versions by name of one lock."""
    found = [PIN.fullmatch(line) for line in lines_of(name)]
    return {it[1]: it[2] for it in found if it}


def lines_of(name: str) -> list[str]:
    """Lines of a lock, joined with the lines that continue them."""
    text = (ROOT / "requirements" / name).read_text()
    return re.sub(r" \\\n +", " ", text).splitlines()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_is_sorted_unique_pins_with_hashes_and_without_addresses(name: str) -> None:
    assert all(PIN.fullmatch(line) for line in lines_of(name)), name
    assert list(pinned(name)) == sorted(set(pinned(name)))
    assert len(lines_of(name)) == len(pinned(name))


def test_a_version_has_the_same_hashes_in_every_lock() -> None:
    """Those of all its files, so which machine a lock is made on makes no difference."""
    found: dict[str, set[str]] = {}
    for name in LOCKS:
        for line in lines_of(name):
            found.setdefault(line.partition(" ")[0], set()).add(line)
    assert {pin for pin, lines in found.items() if len(lines) > 1} == set()
    assert len(found) > 240


def listed(name: str) -> list[str]:
    """Names a `.in` list asks for itself, as a lock writes them."""
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    asked = [re.match(r"[A-Za-z0-9_.-]+", line) for line in lines if line[:1] not in "#-"]
    return [re.sub(r"[-_.]+", "-", found.group().lower()) for found in asked if found]


def test_what_commands_import_is_locked_for_all() -> None:
    """What tools, the real engine and heads of predictors need beside it is for them alone."""
    locked, known = set(pinned("base.txt")), packages_distributions()
    apart = [ROOT / "harness" / it for it in ("tools", "engines/vllm", "predictors")]
    files = [it for it in python_files() if not is_test(it)]
    modules = {
        module.partition(".")[0]
        for path in files
        if not any(path.is_relative_to(place) for place in apart)
        for module in imported_at_once(path)
    }
    foreign = modules - set(sys.stdlib_module_names) - {"harness", "baselines", "systems", "plots"}
    names = {it: {re.sub(r"[-_.]+", "-", one.lower()) for one in known[it]} for it in foreign}
    assert [it for it, of in sorted(names.items()) if not of & locked] == []


def test_every_name_asked_for_is_locked() -> None:
    assert len(listed("base.in")) == 17
    assert set(listed("base.in")) <= set(pinned("base.txt"))
    assert set(listed("dev.in")) <= set(pinned("base.txt")) | set(pinned("dev.txt"))
    for alone in ("vllm-cpu", "vllm-gpu", "gpu-pack", "tools", "peer"):
        asked = {*listed(f"{alone}.in"), *(listed("base.in") if "vllm" in alone else ())}
        assert asked <= set(pinned(f"{alone}.txt"))


def test_torch_alone_is_apart_and_the_same_as_on_gpus() -> None:
    said = (ROOT / "requirements" / "torch.txt").read_text().splitlines()
    asked = [line for line in said if not line.startswith("#")]
    assert asked == [f"torch=={pinned('vllm-gpu.txt')['torch']}"]
    assert all("torch" not in pinned(name) for name in LOCKS if name != "vllm-gpu.txt")


def test_nothing_else_is_installed_without_hashes() -> None:
    """What make installs, be it in one environment or another."""
    text = (ROOT / "Makefile").read_text()
    installs = re.findall(r"pip install (.*?)(?: -r|$)", text, re.MULTILINE)
    assert len(installs) == 4
    assert [it for it in installs if "--require-hashes" not in it] == ["--quiet"]
    assert "TORCH := $(BIN)/pip install --quiet -r requirements/torch.txt\n" in text


_WITHOUT = """
import sys
from importlib.metadata import packages_distributions
for module, names in packages_distributions().items():
    if not {name.lower().replace("_", "-") for name in names} & {*sys.argv[1:]}:
        sys.modules[module] = None
from harness.engines.simulator import warm_up
"""


def test_the_compiler_needs_only_what_is_installed_first() -> None:
    text = (ROOT / "Makefile").read_text()
    first = re.findall(r"^KERNEL := (.*)", text, re.MULTILINE)[0].split("|")
    assert set(first) <= set(pinned("base.txt"))
    subprocess.run([sys.executable, "-c", _WITHOUT, *first], cwd=ROOT, check=True)


def test_training_fits_into_the_environment_of_base_and_the_cpu_engine() -> None:
    train, cpu = pinned("train.txt"), pinned("vllm-cpu.txt")
    assert set(listed("train.in")) <= {"torch", *train, *pinned("base.txt")}
    assert not set(train) & set(pinned("base.txt"))
    assert "sentence-transformers" not in train
    assert {name: cpu[name] for name in set(train) & set(cpu)} == {
        name: train[name] for name in set(train) & set(cpu)
    }


def recipes() -> dict[str, list[str]]:
    """Recipe lines of every target."""
    found: dict[str, list[str]] = {}
    target = ""
    for line in (ROOT / "Makefile").read_text().splitlines():
        if line.startswith("\t"):
            found[target].append(line)
        elif rule := re.match(r"([.\w/%-]+):(?!=)", line):
            target = rule.group(1)
            found.setdefault(target, [])
    return found


def test_help_lists_every_target() -> None:
    done = subprocess.run(
        ["make", "help"], cwd=ROOT, env=OUTSIDE, check=True, capture_output=True, text=True
    )
    shown = [line.split()[0] for line in done.stdout.splitlines()]
    phony = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split()
    # A pattern cannot be declared phony.
    assert sorted(name for name in shown if "%" not in name) == sorted(phony)


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("reproduce-fig7", "samullm fig7"),
        ("reproduce-samullm", "samullm"),
        ("reproduce-ssjf-fig4", "ssjf fig4"),
    ],
)
def test_figures_are_reproduced_by_one_command(target: str, asked: str) -> None:
    done = subprocess.run(
        ["make", "-n", target], cwd=ROOT, env=OUTSIDE, check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == f".venv/bin/python -m harness reproduce {asked}"


def test_a_name_with_any_character_reaches_the_command_as_it_is(tmp_path: Path) -> None:
    shown = tmp_path / "python"
    shown.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    shown.chmod(0o755)
    words = [
        f"TRACE={HARD}",
        f"LOG={HARD}",
        "MODEL=$(x 'y'",
        f"POLICY={HARD}",
        "TP=4",
        "TTFT=0.5",
        "LOADS=a b",
    ]
    asked = {
        "compare": ["--model=$(x 'y'", "--tensor-parallel=4", "--ttft=0.5", "--", HARD],
        "observed": ["--model=$(x 'y'", "--tensor-parallel=4", "--", HARD],
        "rank": ["--", HARD, "a", "b"],
    }
    for target, given in asked.items():
        make = ["make", "-s", target, *words, f"BIN={tmp_path}", "-o", "setup", "-o", ".venv/dev"]
        done = subprocess.run(make, cwd=ROOT, env=OUTSIDE, capture_output=True, text=True)
        assert done.stdout.splitlines() == ["-m", "harness", target, *given], done.stderr


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The Makefile alone in a folder, beside an environment that has what running needs."""
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    for name in ("requirements/base.txt", "requirements/vllm-gpu.txt", ".venv/base"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def _made(folder: Path, target: str, script: str, **variables: str) -> list[str]:
    """What is printed where this script stands for Python and pip; `$0` tells them apart."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("python", "python3", "pip"):
        (programs / name).write_text(f"#!/bin/sh\nname=${{0##*/}}\n{script}\n")
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["make", "-s", target],
        cwd=folder,
        env=OUTSIDE | {"PATH": f"{programs}:{os.environ['PATH']}"} | variables,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["python", "python3"])
def test_on_a_gpu_the_first_interpreter_with_vllm_is_taken(copied: Path, name: str) -> None:
    script = 'if [ "$1" = -c ]; then [ $name = "$HAS" ]; else echo $name "$@"; fi'
    ran = _made(copied, "smoke-gpu", script, HAS=name)
    assert ran == [f"{name} -m harness.tools.fidelity.smoke_gpu"]


@pytest.mark.parametrize("status", ["3", "0"])
def test_vllm_is_installed_where_there_is_a_gpu(copied: Path, status: str) -> None:
    script = '[ "$1" = -c ] && exit 1; echo $name "$@"; case "$*" in *--look) exit "$LOOKS"; esac'
    ran = _made(copied, "smoke-gpu", script, LOOKS=status)
    smoke = "python -m harness.tools.fidelity.smoke_gpu"
    install = "pip install --quiet --require-hashes -r requirements/vllm-gpu.txt"
    assert ran == [f"{smoke} --look", *([] if status == "3" else [install, smoke])]


@pytest.mark.parametrize("version", ["3.9", None])
def test_setup_without_a_recent_python_is_one_sentence(tmp_path: Path, version: str | None) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "base.txt").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    if version:  # answers every program, as an interpreter that finds itself too old does
        (tools / "python3").write_text('#!/bin/sh\ntest -z "$2"\n')
        (tools / "python3").chmod(0o755)
    make = subprocess.run(["/bin/sh", "-c", "command -v make"], capture_output=True, text=True)
    done = subprocess.run(
        [make.stdout.strip(), "setup"],
        cwd=tmp_path,
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("this needs Python 3.11 or newer on the PATH")
    assert not (tmp_path / ".venv").exists()


def test_ci_runs_the_test_command_and_passes_its_status_on(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_text((ROOT / ".ci" / "run").read_text())
    script.chmod(0o755)
    (tmp_path / "Makefile").write_text("test:\n\t@cat; echo 3 passed; exit 7\n")
    done = subprocess.run(
        [script], cwd="/", env=OUTSIDE, capture_output=True, text=True, input="never read"
    )
    assert done.returncode == 2  # make's own status for a recipe that failed
    assert done.stdout == "3 passed\n"
