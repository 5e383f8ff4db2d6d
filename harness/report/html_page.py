"""One offline HTML file of all that is published, with runs of this machine: `results/report.html`.

Per paper: its headline, a word per figure, and of each figure the plot, the claims and the command.
Then the league, and the newest runs below results/, down to where the time of a request went. What
is published comes from results/claims, pages, figures and league; where no run is on this machine
one small example is simulated. The file asks for nothing: styles, script and plots are inside.
"""

import base64
import csv
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from math import isnan
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader
from PIL import Image

from harness.claims.judge import REFERENCE, Judged
from harness.claims.paper import FigureSpec, Paper, load_paper, papers
from harness.claims.verdicts import Verdict, Word
from harness.league import LOADS, summary
from harness.report.paper_page import counts_text, rows_of, words_of
from harness.results import scenarios
from harness.runs.compare import scenario_runs
from harness.runs.table import FIGURES
from harness.why import PARTS, parts

TEMPLATES = Path(__file__).parent / "page"
RUNS, REQUESTS = 12, 100
"""Of this machine: the newest runs, and of each the slowest requests."""
COLOURS = 64
"""Of a plot in the file: lines and letters need no more."""
EXAMPLE = "example"
SHOWN = (
    *("requests", "jct_s_mean", "jct_s_p99", "ttft_s_mean", "ttft_s_p99", "tpot_s_mean"),
    *("act_s_mean", "slo_attainment", "goodput_per_s", "gpu_idle_s"),
)
"""Figures of a run."""

Page = dict[str, Any]


def write(root: Path, place: Path) -> Path:
    """Write the report of a checkout to `place`; returns it.

    ValueError where a paper's page and its claims do not go together: one is older.
    """
    page = {
        "papers": [paper_part(root, load_paper(name)) for name in papers()],
        "league": league_part(root),
        "runs": runs_part(root),
        "parts": [name.removesuffix("_s") for name in PARTS],
        "words": [word.value for word in Word],
    }
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["data"] = as_data
    style, script = ((TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    text = environment.get_template("page.html.j2").render(**page, style=style, script=script)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


def as_data(value: object) -> str:
    """JSON for a script element, of which no text can end the element."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")


def paper_part(root: Path, paper: Paper) -> Page:
    """What the report says of a paper; without published verdicts, the command that makes them."""
    page = root / "results" / "pages" / f"{paper.name}.md"
    verdicts = root / "results" / "claims" / f"{paper.name}.csv"
    found: Page = {"name": paper.name, "title": paper.title, "citation": paper.citation}
    if not (page.is_file() and verdicts.is_file()):
        return found | {"command": f"make reproduce-{paper.name}", "figures": []}
    text = page.read_text(encoding="utf-8")
    said = [line[1:].strip() for line in text.splitlines() if line.startswith(">")]
    with verdicts.open(newline="", encoding="utf-8") as file:
        words = {
            row["claim"]: Word(row["verdict"])
            for row in csv.DictReader(file)
            if row["setting"] == REFERENCE
        }
    if missing := paper.claims.keys() ^ words.keys():
        raise ValueError(f"{verdicts} and the claims of {paper.name} differ in {min(missing)}")
    rows = _rows(paper, text, words)
    return found | {
        "headline": _plain(" ".join(said[: said.index("")])),
        "basis": _plain(said[-1]).partition(". ")[2],
        "counts": counts_text(Counter(words.values())),
        "figures": [
            _figure(root, paper, one, [row for row in rows if row["figure"] == one.name])
            for one in paper.figures
        ],
        "forest": _picture(root, f"{paper.name}_forest"),
    }


def _rows(paper: Paper, page: str, words: Mapping[str, Word]) -> list[Page]:
    """The table of a paper's page, each row with its figure, its claims' words and its quotes."""
    lines = page.partition("\n| claim |")[2].partition("\n\n")[0].splitlines()
    cells = [line[2:-2].split(" | ") for line in (f"| claim |{lines[0]}", *lines[2:])]
    table = {line[0]: dict(zip(cells[0], line, strict=True)) for line in cells[1:]}
    nothing = [Judged(claim, Verdict(Word.UNTESTED)) for claim in paper.claims.values()]
    found = []
    for row in rows_of(nothing):
        said = words_of(row).replace("|", "/")
        if said not in table:
            raise ValueError(f"the page of {paper.name} has no row {said!r}")
        claims = [one.claim for one in row]
        found.append(
            {
                **{
                    name: table[said][name]
                    for name in ("claim", "paper", "ours", "verdict", "reason")
                },
                "code": table[said].get("authors' program", "").strip(),
                "figure": claims[0].figure,
                "words": [words[claim.id].value for claim in claims],
                "quotes": list(dict.fromkeys(f"{one.where}: {one.quote}" for one in claims)),
            }
        )
    return found


def _figure(root: Path, paper: Paper, figure: FigureSpec, rows: Sequence[Page]) -> Page:
    """A figure with its plot, its rows, and one word for all its claims."""
    counts = Counter(word for row in rows for word in row["words"])
    tested = {word for word in counts if word != Word.UNTESTED.value}
    of_all = Word.UNTESTED.value if rows else ""
    if tested:
        of_all = tested.pop() if len(tested) == 1 else Word.PARTLY.value
    return {
        "name": figure.name,
        "shows": figure.shows,
        "rows": rows,
        "word": of_all,
        "counts": ", ".join(f"{counts[word.value]} {word.value}" for word in Word if counts[word]),
        "picture": _picture(root, f"{paper.name}_{figure.name}"),
        "command": f"make reproduce-{paper.name}-{figure.name}" if figure.scenarios else "",
    }


def _plain(text: str) -> str:
    """Markdown as plain text."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("**", "").replace("*", "")


def _picture(root: Path, name: str) -> str:
    """A published plot as a data address, with few colours; empty where there is none."""
    path = root / "results" / "figures" / f"{name}.png"
    if not path.is_file():
        return ""
    small = BytesIO()
    with Image.open(path) as image:
        image.convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"


def league_part(root: Path) -> Page | None:
    """Policies by regret, of requests and of applications; None where no league was run."""
    folders = (root / "results" / "league", root / "results" / "local" / "league")
    path = next((one / "league.csv" for one in folders if (one / "league.csv").is_file()), None)
    if path is None:
        return None
    found = pd.read_csv(path)
    about = root / "results" / "pages" / "league.md"
    said = about.read_text(encoding="utf-8").split("\n\n")[1:3] if about.is_file() else []
    tables = []
    for judged in dict.fromkeys(tuple(load.judged) for load in LOADS.values()):
        names = [name for name, load in LOADS.items() if tuple(load.judged) == judged]
        rows = found[found["load"].isin(names) & found["figure"].isin(judged)]
        if len(rows):
            shown = summary(rows, judged)
            tables.append(
                {
                    "loads": [name for name in names if (rows["load"] == name).any()],
                    "columns": [FIGURES.get(str(name), str(name)) for name in shown],
                    "rows": [(str(policy), *map(_or_none, row)) for policy, *row in _lines(shown)],
                }
            )
    return {"said": [_plain(part) for part in said], "tables": tables} | {
        "picture": _picture(root, "league")
    }


def _lines(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    return iter(frame.itertuples(name=None))


def _or_none(value: float) -> float | None:
    return None if isnan(value) else float(value)


def runs_part(root: Path) -> list[Page]:
    """The newest runs on this machine, with their slowest requests; an example where none is."""
    folders = _newest(root)
    if not folders:
        words = [f"name={EXAMPLE}", "workload.requests=60", "tracking=none", "workers=1"]
        command = [sys.executable, str(root / "harness" / "run.py"), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        folders = _newest(root)
    return [_run(folder) for folder in folders]


def _newest(root: Path) -> list[Path]:
    """Folders of the newest runs, at most two of a scenario."""
    every = [run for folder in scenarios(root / "results", []) for run in scenario_runs(folder)]
    whole = [run for run in every if (run / "summary.json").is_file()]
    whole.sort(key=lambda run: (run / "summary.json").stat().st_mtime, reverse=True)
    count: Counter[str] = Counter()
    found = []
    for run in whole:
        count[run.parent.name] += 1
        if count[run.parent.name] <= 2:
            found.append(run)
    return found[:RUNS]


def _run(folder: Path) -> Page:
    """A run: what it was, its figures, and the parts of its slowest requests in seconds."""
    summary_of = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    provenance = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    requests = pd.read_parquet(folder / "requests.parquet")
    every = parts(requests)
    slowest = every.loc[every.sum(axis=1).sort_values(ascending=False).index[:REQUESTS]]
    return {
        "name": f"{folder.parent.name}/{folder.name}",
        "engine": provenance.get("engine", ""),
        "config": (folder / "config.yaml").read_text(encoding="utf-8"),
        "figures": [
            [FIGURES.get(name, name.replace("_", " ")), summary_of[name]]
            for name in SHOWN
            if summary_of.get(name) is not None
        ],
        "count": len(requests),
        "medians": [round(float(every[name].median()), 4) for name in PARTS] if len(every) else [],
        "requests": [
            [int(request), *(round(float(value), 4) for value in row)]
            for request, *row in _lines(slowest)
        ],
    }
