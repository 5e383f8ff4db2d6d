"""The report: every paper, figure and claim, nothing from elsewhere, hostile texts are texts."""

import json
import re
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness import api
from harness.claims.effects import EffectKind
from harness.claims.paper import Claim, FigureSpec, Judged, Paper, load_paper, papers
from harness.claims.tables import write_csv
from harness.claims.verdicts import Verdict, Word
from harness.conditions.outcomes import Outcome
from harness.conditions.trials import WHY
from harness.config.paths import ROOT
from harness.report import html_page
from harness.report.condition_maps import maps_part
from harness.report.paper_page import page_of
from harness.tests.support.browser import PROGRAMS, Browser, browser, program
from harness.tests.support.run_folders import write_two_requests
from plots.conditions import COLOURS

HOSTILE = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)> & {{ 7 * 7 }}"
MOST_BYTES = 10_000_000


class Tags(HTMLParser):
    """Elements with their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        last = self.found[-1][0] if self.found else ""
        self.texts[last] = self.texts.get(last, "") + data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of this checkout, with one hostile run."""
    run = write_two_requests(tmp_path_factory.mktemp("runs") / "chats" / "0123456789ab")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_page, "newest", lambda results: iter([run]))
        place = tmp_path_factory.mktemp("report") / "report.html"
        return html_page.write(ROOT, place, serve=partial(api.sweep, None))


@pytest.fixture(scope="module")
def text(report: Path) -> str:
    """What is in the report."""
    return report.read_text(encoding="utf-8")


def data_of(text: str) -> Any:
    """What the script of a report reads."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.mark.slow
def test_the_report_is_small(report: Path) -> None:
    assert report.stat().st_size <= MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("name", papers())
def test_every_figure_and_claim_of_a_paper_is_there(text: str, name: str) -> None:
    paper, ids = load_paper(name), {str(it.get("id")) for _, it in Tags(text).found}
    drawn = {
        figure.name
        for figure in paper.figures
        if (ROOT / "results" / "figures" / f"{name}_{figure.name}.png").is_file()
    }
    claimed = {claim.figure for claim in paper.claims.values()}
    assert {name, *(f"{name}-{figure}" for figure in drawn | claimed)} <= ids
    assert data_of(text)["claims"][name].keys() == paper.claims.keys()


@pytest.mark.slow
def test_nothing_is_loaded(text: str) -> None:
    """Every address is inside the file; styles and script name none."""
    tags = Tags(text)
    addresses = [it[name] or "" for _, it in tags.found for name in ("src", "href") if name in it]
    assert len(addresses) > 100
    assert [one for one in addresses if not one.startswith(("#", "data:image/png;base64,"))] == []
    assert {tag for tag, _ in tags.found} & {"link", "iframe", "object", "base", "form"} == set()
    for tag in ("style", "script"):
        assert not re.search(r"url\(|@import|fetch\(|import\(|https?://", tags.texts[tag])


@pytest.mark.slow
def test_a_request_is_split_into_its_parts(text: str) -> None:
    data = data_of(text)
    (run,) = data["runs"]
    assert data["parts"] == ["waiting", "preempted", "prefill", "decode", "paused"]
    # Arrived at 1 s, 10 and 7 tokens, no preemption, first service; 0.5 s waiting, 0.5 s of
    # prompt, 2.0 - 0.5 s of answer, 0.5 s paused.
    assert run["requests"][0] == [0, 1.0, 10.0, 7.0, 0.0, 0, 0.5, 0.0, 0.5, 1.5, 0.5]
    assert run["medians"] == [[0.25, 0.0, 0.5, 1.5, 0.25]]
    assert run["config"].startswith("name: </script><b>\n")
    assert run["setting"] == "simulated: policy=<i>mine</i> seed=0"


def hostile_paper() -> tuple[Paper, list[Judged]]:
    """A paper all of whose texts are hostile, and its verdicts."""
    paper = Paper(
        name="evil",
        title=HOSTILE,
        citation=HOSTILE,
        figures=(FigureSpec(name="fig1", shows=HOSTILE, plot="p:q"),),
        headline=lambda judged: f"**{HOSTILE}** {HOSTILE}",
        chosen=(HOSTILE,),
        program=HOSTILE,
    )
    claim = Claim(id="a", figure="fig1", where=HOSTILE, says=HOSTILE, quote=HOSTILE, paper=2.0)
    paper.claims["a"] = claim
    found = Verdict(Word.PARTLY, 1.5, 1.4, 1.6, 0.5, seeds=3, reason=HOSTILE, kind=EffectKind.RATIO)
    return paper, [Judged(claim, found, {HOSTILE: found})]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    paper, judged = hostile_paper()
    (tmp_path / "results" / "pages").mkdir(parents=True)
    page = tmp_path / "results" / "pages" / "evil.md"
    page.write_text(page_of(paper, judged, basis=HOSTILE))
    write_csv(tmp_path / "results" / "claims" / "evil.csv", judged)
    part = html_page.paper_part(tmp_path, paper)
    run = html_page.run_of(write_two_requests(tmp_path / "chats" / "0123456789ab"))
    table = pd.DataFrame({HOSTILE: [0.5]}, index=[HOSTILE])
    league = {"said": [HOSTILE], "tables": {HOSTILE: table}}
    text = html_page.rendered(tmp_path, [part], HOSTILE, league, [run])
    tags = Tags(text)
    kinds = [tag for tag, _ in tags.found]
    assert (kinds.count("script"), kinds.count("img"), kinds.count("i")) == (2, 0, 1)
    assert not any(name.startswith("on") for _, it in tags.found for name in it)
    assert "{{ 7 * 7 }}" in tags.texts["h2"]
    (claim,) = data_of(text)["claims"]["evil"].values()
    assert claim["quote"] == f"{HOSTILE}: {HOSTILE}"
    assert claim["settings"] == [[HOSTILE, "1.50x", "[1.40, 1.60]", "partly", HOSTILE]]


@pytest.mark.parametrize(
    ("group", "says", "label"),
    [
        ("", "faster", "faster"),
        ("JCT saved (none / all)", "JCT saved, none", "JCT saved, none"),
        ("speedup", "over A", "speedup: over A"),
        (
            "padding with least JCT, ours",
            "padding with least JCT, a",
            "padding with least JCT, ours: a",
        ),
    ],
)
def test_a_claim_has_words_of_its_own(group: str, says: str, label: str) -> None:
    claim = Claim(id="a", figure="fig1", where="", says=says, quote="", group=group)
    assert claim.words == label


def test_verdicts_of_other_claims_are_refused(tmp_path: Path) -> None:
    for place, content in {"pages/ssjf.md": "> S.\n>\n> x. y.\n", "claims/ssjf.csv": ""}.items():
        path = tmp_path / "results" / place
        path.parent.mkdir(parents=True)
        path.write_text(content or "claim,setting,verdict\na,reference,holds\n")
    with pytest.raises(ValueError, match=r"ssjf\.csv and the claims of ssjf differ in a$"):
        html_page.paper_part(tmp_path, load_paper("ssjf"))


def test_without_verdicts_and_league_the_commands_are_named(tmp_path: Path) -> None:
    part = html_page.paper_part(tmp_path, load_paper("ssjf"))
    text = html_page.rendered(tmp_path, [part], "", None, [])
    assert "No verdicts are published: <code>make reproduce-ssjf</code>" in text
    assert "No league was run on this machine: <code>make league</code>" in text


def test_a_league_of_this_machine_is_shown_by_load(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "local" / "league"
    folder.mkdir(parents=True)
    rows = [
        (load, 0.5, "ample", policy, "jct_s_mean", 1.0, regret, 1)
        for load in ("mooncake", "sharegpt")
        for policy, regret in (("a", 0.25), ("b", 0.0))
    ]
    names = ["load", "share", "kv", "policy", "figure", "value", "regret", "rank"]
    pd.DataFrame(rows, columns=names).to_csv(folder / "league.csv", index=False)
    part = html_page.league_part(tmp_path)
    assert part is not None
    assert list(part["tables"]) == ["all of mooncake, sharegpt", "mooncake", "sharegpt"]
    table = part["tables"]["all of mooncake, sharegpt"]
    assert table.iloc[0, :3].to_dict() == {"median regret": 0.0, "first in": 1.0, "mean JCT s": 0.0}
    assert list(table.index) == ["b", "a"]


def with_maps(tmp_path: Path) -> Path:
    """Results of a folder, with the published cells of one space, the second of them refused."""
    conditions = tmp_path / "conditions"
    (conditions / "ssjf").mkdir(parents=True)
    published = ROOT / "results" / "conditions"
    maps = json.loads((published / "ssjf.json").read_text(encoding="utf-8"))
    one = {"fig4.jct-none": maps["fig4.jct-none"]}
    (conditions / "ssjf.json").write_text(json.dumps(one))
    table = pd.read_csv(published / "ssjf" / "fig4-none.csv").head(4).astype({WHY: object})
    table.loc[1, [f"fig4.jct-none {it}" for it in ("value", "low", "high", "share")]] = float("nan")
    table.loc[1, ["fig4.jct-none outcome", WHY]] = ["impossible", HOSTILE]
    table.to_csv(conditions / "ssjf" / "fig4-none.csv", index=False)
    return tmp_path


def test_maps_are_explored_where_they_are_published(tmp_path: Path) -> None:
    maps = maps_part(with_maps(tmp_path))
    text = html_page.rendered(tmp_path, [], "", None, [], maps)
    assert 'id="conditions"' in text
    assert "</script><script>alert" not in text
    (paper,) = data_of(text)["maps"]["papers"]
    (claim,) = paper["claims"]
    space = paper["spaces"][claim["space"]]
    names = [it[0] for it in space["axes"]]
    assert names[: space["dimensions"]] == ["load", "spread", "burstiness", "error", "requests"]
    assert space["axes"][0][3:] == [True, 0.2, 60]
    assert space["columns"]["load"][:2] == [25.59, 0.242]
    assert space["why"] == {"1": HOSTILE}
    assert (claim["value"][:2], claim["outcome"][:2]) == ([0.4311, None], [0, 4])
    assert claim["influence"][:2] == ["error", "load"]


def test_outcomes_have_the_colours_of_the_pictures() -> None:
    style = (Path(html_page.__file__).parent / "templates" / "report.css").read_text("utf-8")
    for place, outcome in enumerate(Outcome):
        colour = COLOURS.get(outcome, "none").lower()
        assert f".outcome{place} {{ fill: {colour};" in style


def test_without_maps_there_is_no_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maps_part(tmp_path) is None
    text = html_page.rendered(tmp_path, [], "", None, [])
    assert 'id="conditions"' not in text
    path = with_maps(tmp_path) / "conditions" / "ssjf.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"digest": "', '"digest": "0'))
    assert maps_part(tmp_path) is None
    said = "left out: the map of fig4.jct-none: its space or its claim has been changed since"
    assert said in capsys.readouterr().err


def test_the_newest_runs_are_shown(tmp_path: Path) -> None:
    runs = [("0123456789ab", "a"), ("1123456789ab", "b"), ("2123456789ab", "b")]
    for name, policy in runs:
        write_two_requests(tmp_path / "chats" / name, policy=policy)
    found = [str(run.relative_to(tmp_path)) for run in html_page.newest(tmp_path)]
    assert found == ["chats/2123456789ab", "chats/0123456789ab"]


@pytest.mark.slow
def test_without_runs_an_example_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (run,) = html_page.runs_part(tmp_path, partial(api.sweep, None))
    assert run["name"].startswith("example/")
    assert run["count"] == len(run["requests"]) == 60
    assert sum(run["requests"][0][6:]) > 0


def test_an_example_that_fails_is_one_sentence(tmp_path: Path) -> None:
    lost = pd.DataFrame({"failed": ["no such model"]})
    with pytest.raises(ValueError, match="the example failed: no such model"):
        html_page.simulate_example(tmp_path, lambda _: lost)


@pytest.fixture(scope="module")
def shown(report: Path) -> Iterator[Browser]:
    """A browser that has the report open."""
    if program() is None:
        pytest.skip(f"no browser: none of {', '.join(PROGRAMS)} is installed")
    with browser() as page:
        page.size(1440, 900)
        page.open(report)
        yield page


def press_text(page: Browser, text: str) -> None:
    """Empty the filter, focus it by key and type."""
    for key in ("Escape", "/"):
        page.press(key)
    page.type(text)


@pytest.mark.slow
def test_the_filter_is_typed_and_cleared_by_keys(shown: Browser) -> None:
    count = "[...document.querySelectorAll('tr.entry')].filter(it => !it.hidden).length"
    every = shown.run(count)
    press_text(shown, "lmsys")
    assert shown.run("document.activeElement.id") == "filter"
    assert 0 < shown.run(count) < every / 4
    assert shown.run("document.getElementById('found').textContent").endswith("rows match")
    press_text(shown, "no-row-has-this")
    assert shown.run(count) == 0
    shown.press("Escape")
    assert shown.run(count) == every
    assert shown.run("document.querySelectorAll('details.figure[open]').length") == 0


@pytest.mark.slow
def test_a_column_is_sorted_both_ways_by_the_keyboard(shown: Browser) -> None:
    values = "[...document.querySelectorAll('.league:not([hidden]) tbody tr')]"
    values += ".map(it => Number(it.cells[3].dataset.value))"
    header = "document.querySelectorAll('.league:not([hidden]) thead th')[3]"
    shown.run(f"{header}.firstElementChild.focus()")
    for order, falls in (("ascending", False), ("descending", True)):
        shown.press("Enter")
        assert shown.run(f"{header}.ariaSort") == order
        found = shown.run(values)
        assert len(found) > 5
        assert found == sorted(found, reverse=falls)


@pytest.mark.slow
def test_a_claim_shows_its_quotation_and_settings(shown: Browser) -> None:
    figure = "document.querySelector('details.figure:has(button.more)')"
    shown.run(f"{figure}.open = true; {figure}.querySelector('button.more').focus()")
    shown.press("Enter")
    assert shown.run(f"{figure}.querySelectorAll('tr.detail').length") == 1
    assert shown.run(f"{figure}.querySelector('tr.detail p').textContent.length") > 20
    shown.press("Enter")
    assert shown.run(f"{figure}.querySelectorAll('tr.detail').length") == 0


@pytest.mark.slow
def test_a_run_leads_to_a_request_and_its_parts(shown: Browser) -> None:
    shown.run("document.querySelector('button.run').focus()")
    shown.press("Enter")
    assert shown.run("document.activeElement.id") == "run"
    shown.run("document.querySelector('#run tbody button').focus()")
    shown.press("Enter")
    title = shown.run("document.querySelector('#request h4').textContent")
    assert title.startswith("Request 0 of <img src=x onerror=alert(1)>: 3.000 s")
    cells = "[...document.querySelectorAll('#request tbody tr')].map(it => it.innerText)"
    split = dict(line.split("\t", 1) for line in shown.run(cells))
    assert split["decode"].split() == ["1.500", "50%", "1.500"]


@pytest.mark.slow
def test_a_map_is_filtered_and_a_setting_names_its_command(shown: Browser) -> None:
    dots = "document.querySelectorAll('#map-plot .dot').length"
    every = shown.run(dots)
    assert every > 200
    shown.run("document.querySelector('#map-filters input').focus()")
    shown.press("ArrowRight")
    assert 0 < shown.run(dots) < every
    shown.run("document.getElementById('map-plot').focus()")
    command = "document.querySelector('#map-cell code').textContent"
    first = shown.run(command)
    shown.press("ArrowRight")
    assert shown.run(command) != first
    assert re.fullmatch(r"python -m harness conditions \w+ --cell \S+:\d+", shown.run(command))
    shown.run("document.querySelector('#map-near tbody tr:nth-child(2) button').focus()")
    shown.press("Enter")
    assert shown.run("document.activeElement.id") == "map-cell"
    shown.run("[...document.querySelectorAll('#map-filters button')].at(-1).click()")
    assert shown.run(dots) == every


@pytest.mark.slow
def test_colours_follow_the_system_and_the_button(shown: Browser) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = shown.run(ground)
    shown.size(390, 800, scheme="dark")
    dark = shown.run(ground)
    assert dark != light
    assert shown.run("document.documentElement.scrollWidth") == 390
    shown.run("document.getElementById('theme').click()")
    assert shown.run(ground) == light
    shown.run("document.getElementById('theme').click()")
    shown.size(800, 800, scheme="dark", media="print")
    assert shown.run(ground) == light
    shown.run("document.documentElement.removeAttribute('data-theme')")
    shown.size(1440, 900)


@pytest.mark.slow
def test_it_asks_for_nothing(shown: Browser, report: Path) -> None:
    shown.open(report)
    asked = {one for one in shown.requested if not one.startswith("data:")}
    assert asked == {report.as_uri()}
    assert shown.problems == []
