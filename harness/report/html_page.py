"""One offline HTML file of all that is published, with runs of this machine: `results/report.html`.

Per paper: its headline, the verdicts by figure, and of each figure plot, claims and command. Then
the league, and the newest runs below results/, down to where the time of a request went. What is
published comes from results/claims, pages, figures and league; where no run is on this machine one
small example is simulated. The file makes no network request: styles,
script and plots are embedded.
"""

import json
from collections.abc import Sequence
from math import isnan
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from harness.claims.paper import load_paper, papers
from harness.report.html_papers import Page, counts_of, paper_part, picture, plain
from harness.report.html_runs import FACTS, runs_part
from harness.report.league import LOADS, summary
from harness.report.real_vllm import fidelity_headline_part
from harness.runs.figures import header_of
from harness.runs.published import write as write_file
from harness.why import PARTS

TEMPLATES = Path(__file__).parent / "page"


def write(root: Path, place: Path) -> Path:
    """Write the report of a checkout to `place`; returns it.

    ValueError where a paper's page and its claims do not go together: one is older.
    """
    every = [paper_part(root, load_paper(name)) for name in papers()]
    page = {
        "papers": every,
        "counts": counts_of(
            [row for paper in every for figure in paper["figures"] for row in figure["rows"]]
        ),
        "fidelity": plain(fidelity_headline_part(root)),
        "league": league_part(root),
        "runs": runs_part(root),
    }
    write_file(place, rendered(page))
    return place


def rendered(page: Page) -> str:
    """The file's text. Every value is escaped; those for the script cannot end its element."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["data"] = as_data
    style, script = ((TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    data = {
        "runs": page["runs"],
        "parts": [name.removesuffix("_s") for name in PARTS],
        "facts": FACTS,
        "claims": {paper["name"]: paper["claims"] for paper in page["papers"]},
    }
    template = environment.get_template("page.html.j2")
    return template.render(**page, data=data, style=style, script=script)


def as_data(value: object) -> str:
    """JSON for a script element, of which no text can end the element."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def league_part(root: Path) -> Page | None:
    """The league as tables, of several loads together and of each; None where none was run.

    A published league comes before one of this machine.
    """
    folders = (root / "results", root / "results" / "local")
    found = next((one for one in folders if (one / "league" / "league.csv").is_file()), None)
    if found is None:
        return None
    rows = pd.read_csv(found / "league" / "league.csv")
    about = found / "pages" / "league.md"
    said = about.read_text(encoding="utf-8").split("\n\n")[1:3] if about.is_file() else []
    there = [name for name in LOADS if (rows["load"] == name).any()]
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name in there:
        kinds.setdefault(tuple(LOADS[name].judged), []).append(name)
    choices = [
        (f"all of {', '.join(names)}", names, judged)
        for judged, names in kinds.items()
        if len(names) > 1
    ]
    choices += [(name, [name], judged) for judged, names in kinds.items() for name in names]
    return {
        "said": [plain(part) for part in said],
        "tables": [_league_table(rows, *choice) for choice in choices],
        "picture": picture(root, "league"),
    }


def _league_table(
    rows: pd.DataFrame, title: str, names: Sequence[str], judged: Sequence[str]
) -> Page:
    """Policies by median regret; a value is a share, None where nothing was judged."""
    own = rows[rows["load"].isin(names) & rows["figure"].isin(judged)]
    shown = summary(own, judged)
    return {
        "title": title,
        "columns": [header_of(str(name)) for name in shown],
        "rows": [
            (str(policy), *(None if isnan(value) else float(value) for value in values))
            for policy, *values in shown.itertuples(name=None)
        ],
    }
