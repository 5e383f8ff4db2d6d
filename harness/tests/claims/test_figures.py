"""What a file of figures may say, and that ours say it: every claim has its one figure."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.claims.derived.columns import named
from harness.claims.figures import FigureEntry, PaperFigures, read_figures
from harness.claims.reading import read_claims
from harness.paths import ROOT
from harness.runs.config import VARIANTS

CLAIMS = ROOT / "results" / "claims"
PAPERS = sorted(path.parent.name for path in CLAIMS.glob("*/figures.yaml"))
ENTRIES = [
    pytest.param(entry, id=f"{paper}-{name}")
    for paper in PAPERS
    for name, entry in read_figures(CLAIMS, paper).figures.items()
]


def scenario(name: str) -> dict[str, Any]:
    """The file of a scenario."""
    path = ROOT / "scenarios" / "scenario" / f"{name}.yaml"
    assert path.is_file(), f"there is no scenario {name}"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def test_every_paper_with_claims_has_figures() -> None:
    assert sorted(path.stem for path in CLAIMS.glob("*.yaml")) == PAPERS


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_with_a_check_feeds_exactly_one_figure(paper: str) -> None:
    fed = [name for one in read_figures(CLAIMS, paper).figures.values() for name in one.claims]
    claims = read_claims(CLAIMS / f"{paper}.yaml")
    assert len(set(fed)) == len(fed)
    assert {one.id for one in claims if one.checks} <= set(fed) <= {one.id for one in claims}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_run_is_of_a_scenario_and_of_its_variant(entry: FigureEntry) -> None:
    for variant, runs in entry.runs.items():
        for run, name in zip(runs, entry.scenarios(variant), strict=True):
            said = scenario(name).get("variant", "paper")
            for word in run.split()[1:]:
                key, _, value = word.partition("=")
                assert key == "variant"
                said = value
            assert said == variant, run


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_minutes_are_those_of_its_scenarios(entry: FigureEntry) -> None:
    """Of the variants that it shows; the same scenarios as the program has it take as long."""
    alone = [name for name in entry.scenarios("code") if name not in entry.scenarios("paper")]
    names = [*entry.scenarios("paper"), *alone]
    expected = sum(scenario(name)["expected_minutes"] for name in names)
    assert entry.minutes == pytest.approx(expected)


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_function_that_it_names_is_there(entry: FigureEntry) -> None:
    places = [*entry.derive.values(), *entry.tables.values(), *filter(None, [entry.plotter])]
    assert all(callable(named(place)) for place in places)


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_its_claims_are_tested_on_is_run(entry: FigureEntry) -> None:
    claims = [one for paper in PAPERS for one in read_claims(CLAIMS / f"{paper}.yaml")]
    for one in (claim for claim in claims if claim.id in entry.claims):
        for variant in VARIANTS:
            for check, said in zip(one.checks, one.of(variant).checks, strict=True):
                if said.scenario and (variant == "paper" or check.code):
                    assert said.scenario in entry.scenarios(variant)


def write(folder: Path, figure: dict[str, Any], variants: tuple[str, ...] = ("paper",)) -> Path:
    """A file with one figure, f; the folder of claims that it is in."""
    (folder / "p").mkdir(exist_ok=True)
    content = {"variants": list(variants), "figures": {"f": {"shows": "it", "minutes": 1} | figure}}
    (folder / "p" / "figures.yaml").write_text(yaml.safe_dump(content))
    return folder


def test_a_figure_is_read(tmp_path: Path) -> None:
    runs = {"paper": ["one", "two variant=paper"], "code": ["one variant=code"]}
    found = read_figures(write(tmp_path, {"runs": runs}), "p")
    assert isinstance(found, PaperFigures)
    assert (found.variants, list(found.figures)) == (["paper"], ["f"])
    assert found.figures["f"].scenarios("paper") == ["one", "two"]
    assert found.figures["f"].scenarios("code") == ["one"]
    assert found.chosen([]) == found.chosen(["f"]) == [found.figures["f"]]


@pytest.mark.parametrize(
    ("figure", "said"),
    [
        ({"plotr": "a:b"}, "f: No word of a figure is called 'plotr'; closest: plotter"),
        ({"runs": {"papr": ["one"]}}, "variant=papr is none of paper, code"),
        ({"runs": {"paper": ["one seed=0"]}}, "f: runs.paper='one seed=0' is not SCENARIO"),
        ({"runs": {"paper": [" "]}}, "f: runs.paper=' ' is not SCENARIO"),
        ({"runs": {"paper": ["one"]}, "needs": {"json": ["two"]}}, "f: needs names two, which"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, figure: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"figures.yaml: {said}"):
        read_figures(write(tmp_path, figure), "p")


def test_an_unknown_paper_or_figure_is_told_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no figures of q; there are those of p"):
        read_figures(write(tmp_path, {}), "q")
    with pytest.raises(ValueError, match=r"there are no figures of \.\./p; there are those of p"):
        read_figures(tmp_path, "../p")
    with pytest.raises(ValueError, match="there is no figure g; there are f"):
        read_figures(tmp_path, "p").chosen(["f", "g"])


def test_an_empty_file_has_no_figures(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "figures.yaml").write_text("")
    with pytest.raises(ValueError, match="None is not variants and figures"):
        read_figures(tmp_path, "p")


@pytest.mark.parametrize("name", ["../f", "f f", ""])
def test_a_figure_has_a_name_that_a_file_can_bear(tmp_path: Path, name: str) -> None:
    folder = write(tmp_path, {})
    content = {"variants": ["paper"], "figures": {name: {"shows": "it", "minutes": 1}}}
    (folder / "p" / "figures.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ValueError, match="cannot be the name of a figure"):
        read_figures(folder, "p")
