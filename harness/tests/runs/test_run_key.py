"""A run is named by all that determines it, and kept only where all of that is unchanged."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.config import inputs
from harness.config.paths import PROFILES, ROOT
from harness.engines.simulator.loop import Simulator
from harness.predictors.proxy import Proxy
from harness.predictors.proxy_card import CARD, ENCODER, FIELDS, TOKENIZER, WEIGHTS
from harness.runs import run_key
from harness.runs.provenance import package_version
from harness.runs.source_files import sources_of
from harness.tests.support.checkouts import copy_of_the_project, python
from harness.tests.support.configured import first_cell_of
from harness.tests.support.run_folders import run_cell
from harness.tests.support.traces import ASKING, SMALL, asking, write_prompts

INSTALLED = "harness.runs.run_key.package_version"
POLICY = """
from baselines.fcfs import Fcfs
from beside import LIMIT

class Mine(Fcfs):
    limit = LIMIT
"""


def run_name(*words: str) -> str:
    """The name of a configuration's first run."""
    return first_cell_of(*SMALL, *words).folder.name


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return write_prompts(tmp_path / "prompts.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["numpy", "pandas"])
def test_the_version_of_what_computes_is_in_the_name(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is installed, and as it is loaded, where somebody's path has another one."""
    first = run_name()
    with monkeypatch.context() as patch:
        patch.setattr(f"{package}.__version__", "0.0.1")
        loaded = run_name()
    monkeypatch.setattr(
        INSTALLED, lambda name: "0.0.1" if name == package else package_version(name)
    )
    assert len({first, loaded, run_name()}) == 3


def test_the_version_of_python_is_in_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_name()
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert run_name() != first


@pytest.mark.slow
@pytest.mark.vllm
def test_packages_that_an_engine_computes_with_are_in_its_runs_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    asked: dict[str, tuple[str, ...]] = {
        "simulator": ("engine=simulator",),
        "vllm_dry": ("engine=vllm_dry",),
        "vllm": ("engine=vllm", "+engine.models={vicuna-13b-v1.5: tiny}"),
    }
    names = {engine: [run_name(*words)] for engine, words in asked.items()}
    for package in ("vllm", "torch"):
        monkeypatch.setattr(
            INSTALLED,
            lambda name, faked=package: "0.0.1" if name == faked else package_version(name),
        )
        for engine, found in names.items():
            found.append(run_name(*asked[engine]))
    assert {engine: len(set(found)) for engine, found in names.items()} == {
        "simulator": 1,
        "vllm_dry": 3,
        "vllm": 3,
    }


def test_a_profile_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(PROFILES / "a100_80g_vllm_0_3", folder)
    word = f"hardware.profile={folder}"
    first = run_name(word)
    path = folder / "vicuna-13b-v1.5.json"
    path.write_text(path.read_text().replace('"load_s": ', '"load_s": 1'))
    assert run_name(word) != first


def test_a_trace_is_known_by_its_content(prompts: Path) -> None:
    first = asking(prompts)
    assert str(prompts) in first.named.files
    prompts.write_text(prompts.read_text().replace("10", "11"))
    assert asking(prompts).folder != first.folder


def test_a_dataset_of_the_hub_is_known_by_its_revision() -> None:
    def named(digit: str) -> str:
        dataset = f"workload.hub_dataset=somebody/prompts@{digit * 40}"
        return first_cell_of(*ASKING, "workload.source=hub", dataset).folder.name

    assert named("1") == named("1")
    assert named("1") != named("2")


@pytest.mark.parametrize("changed", [CARD, WEIGHTS, TOKENIZER, ENCODER])
def test_a_checkpoint_is_known_by_every_file(tmp_path: Path, changed: str) -> None:
    def write(weights: bytes, **card: object) -> None:
        (tmp_path / WEIGHTS).write_bytes(weights)
        digest = hashlib.sha256(weights).hexdigest()
        said = dict.fromkeys(FIELDS, 0) | {"weights_sha256": digest} | card
        (tmp_path / CARD).write_text(json.dumps(said))

    for name in (TOKENIZER, ENCODER):
        (tmp_path / name).write_text("{}")
    write(b"1")
    word = ("predictor=proxy", f"predictor.checkpoint={tmp_path}")
    first = run_name(*word)
    if changed == WEIGHTS:
        write(b"2")
    elif changed == CARD:
        write(b"1", seed=1)
    else:
        (tmp_path / changed).write_text("[]")
    assert run_name(*word) != first
    assert Proxy(checkpoint=str(tmp_path), threads=1).measures


@pytest.mark.vllm
def test_models_and_texts_of_a_real_engine_are_known_by_their_content(tmp_path: Path) -> None:
    pytest.importorskip("vllm", reason="vLLM is not installed: make setup-vllm")
    model, texts = tmp_path / "model", tmp_path / "texts"
    shutil.copytree(ROOT / "scenarios" / "models" / "tiny", model)
    texts.write_text("one\n")
    words = ("engine=vllm", f"+engine.models={{vicuna-13b-v1.5:{model}}}", f"engine.texts={texts}")
    found = [run_name(*words)]
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    found.append(run_name(*words))
    texts.write_text("two\n")
    found.append(run_name(*words))
    assert len(set(found)) == 3


@pytest.mark.vllm
def test_the_model_that_vllms_scheduler_is_asked_with_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = pytest.importorskip("harness.engines.vllm.dry", reason="vLLM is not installed")
    first = first_cell_of(*SMALL, "engine=vllm_dry").named.files
    assert "scenarios/models/tiny/config.json" in first
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(dry, "MODEL", tmp_path)
    assert first_cell_of(*SMALL, "engine=vllm_dry").named.files != first


def test_measured_seconds_are_named_by_their_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_name()
    monkeypatch.setattr(Simulator, "runs_alone", True)
    here = run_name()
    monkeypatch.setattr(run_key, "machine", lambda: {"cpu": "another"})
    there = first_cell_of(*SMALL)
    assert there.named.machine == {"cpu": "another"}
    assert len({first, here, there.folder.name}) == 3
    monkeypatch.undo()
    monkeypatch.setattr(run_key, "machine", lambda: {"cpu": "another"})
    assert run_name() == first


@pytest.mark.slow
def test_a_policy_from_elsewhere_is_known_by_its_files(tmp_path: Path) -> None:
    """Its own, and modules beside it that it imports; no others."""
    for name, text in (("mine", POLICY), ("beside", "LIMIT = 1\n"), ("other", "")):
        (tmp_path / f"{name}.py").write_text(text)
    words = [*SMALL, "policy._target_=mine.Mine"]
    ask = "from harness.tests.support.configured import first_cell_of; "
    ask += f"cell = first_cell_of(*{words}); print(cell.folder.name, *cell.named.files)"

    def asked() -> list[str]:
        return python(ROOT, ask, PYTHONPATH=f"{ROOT}:{tmp_path}", TRUSTED_PACKAGES="mine").split()

    first = asked()
    outside = [name for name in first[1:] if not name.startswith("harness/profiles/")]
    assert outside == [str(tmp_path / "beside.py"), str(tmp_path / "mine.py")]
    (tmp_path / "beside.py").write_text("LIMIT = 2\n")
    assert asked()[0] != first[0]


POLICIES = ("fcfs_continuous", "ssjf")
WORDS = ("workload.requests=5", "system=fixed", "predictor=oracle")
NAMES = f"""
from harness.tests.support.configured import first_cell_of
for policy in {POLICIES}:
    print(first_cell_of(*{WORDS}, f"policy={{policy}}").folder.name)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of_the_project(tmp_path_factory.mktemp("checkouts") / "one")


ADDED_FIGURE = '''

@figure(unit="s", better=LESS)
def first_answer_s(view: View) -> float:
    """When the first request has its answer."""
    return float(view.rows["finished_s"].min())
'''


def add_entry(path: Path, like: str) -> None:
    """Another GPU or model, with the facts of one that is there."""
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({**entries, "another": entries[like]}))


def append(path: Path, text: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.is_file() else "") + text)


@pytest.mark.slow
def test_a_run_is_named_by_the_source_files_that_its_cell_imports(checkout: Path) -> None:
    """Of two cells with policies of their own; the place of a checkout does not matter."""
    fcfs, ssjf = (first_cell_of(*WORDS, f"policy={it}").folder.name for it in POLICIES)
    for added in (
        "systems/x.py",
        "systems/ssjf/claims.py",
        "plots/x.py",
        "harness/tests/test_x.py",
    ):
        append(checkout / added)
    for unused in ("harness/claims/judge.py", "harness/runs/table.py", "harness/run.py"):
        append(checkout / unused)
    append(checkout / "harness/profiles/h100_80g_splitwise/bloom-176b.json")
    # A figure whose docstring says something else, and one more.
    append(checkout / "harness/runs/latencies.py", '"""Another word."""\n')
    append(checkout / "harness/runs/figures.py", ADDED_FIGURE)
    add_entry(checkout / "harness/profiles/gpus.json", "A100-80G")
    add_entry(checkout / "harness/profiles/models.json", "vicuna-13b-v1.5")
    assert python(checkout, NAMES).split() == [fcfs, ssjf]
    append(checkout / "systems/ssjf/policy.py")
    edited = python(checkout, NAMES).split()
    assert edited[0] == fcfs
    assert edited[1] != ssjf
    append(checkout / "harness/costs/iteration.py")
    assert not {*python(checkout, NAMES).split()} & {fcfs, *edited}


PRESENTATION = (
    "api claims report reproduce run results tools runs.fairness runs.figures runs.gpu_time "
    "runs.latencies runs.trace_intervals runs.failures runs.perfetto runs.progress runs.record "
    "runs.sweep runs.table runs.tracking"
)


def test_what_starts_and_shows_runs_is_in_no_key() -> None:
    program = sources_of(first_cell_of(*SMALL).named.classes).program
    places = [f"harness/{name.replace('.', '/')}" for name in PRESENTATION.split()]
    assert [n for n in program if n.startswith("plots/") or "claims" in n] == []
    assert [n for n in program for p in places if n in (f"{p}.py", f"{p}/__init__.py")] == []
    assert "baselines/fcfs.py" in program
    assert "systems/ssjf/policy.py" not in program


def test_packages_on_the_way_and_imports_in_functions_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative imports too; what is imported only by a module beside it does not."""
    texts = {
        "brought/__init__.py": "",
        "brought/deep/__init__.py": "from . import near\n",
        "brought/deep/policy.py": "class Policy:\n    def run(self):\n        import far\n",
        "brought/deep/near.py": "import json, numpy.linalg\n",
        "brought/deep/claims.py": "import brought.other\n",
        "brought/other.py": "",
        "far.py": "from baselines.srtf import Srtf\n",
    }
    for name, text in texts.items():
        append(tmp_path / name, text)
    monkeypatch.syspath_prepend(tmp_path)
    found = sources_of(("brought.deep.policy.Policy",))
    unused = {"brought/deep/claims.py", "brought/other.py"}
    assert {*found.outside} == {str(tmp_path / name) for name in texts.keys() - unused}
    assert {"baselines/srtf.py", "baselines/__init__.py"} <= found.program.keys()
    for module in [name for name in sys.modules if name.partition(".")[0] == "brought"]:
        del sys.modules[module]


def test_what_cannot_change_a_result_is_not_in_the_name(tmp_path: Path) -> None:
    assert run_name() == run_name("workers=7", f"results={tmp_path}", "tracking=none", "name=other")
    assert run_name() == run_name("expected_minutes=3", "shows=[jct_s_mean]")


def test_provenance_says_what_a_run_is_named_by(prompts: Path, tmp_path: Path) -> None:
    cell = asking(prompts, f"results={tmp_path}")
    run_cell(cell)
    said = json.loads((cell.folder / "provenance.json").read_text())
    assert said["code"] == cell.named.code
    assert said["inputs"]["files"] == cell.named.files
    assert cell.named.files[str(prompts)] == inputs.sha256(prompts)
    assert said["inputs"]["versions"]["numpy"] == np.__version__
    assert set(said["inputs"]["versions"]) == set(run_key.COMPUTES)
    assert said["inputs"]["machine"] == {}
