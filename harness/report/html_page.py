"""One offline HTML file of all that is published, with runs of this machine: `results/report.html`.

Per paper: its headline, the verdicts by figure, and of each figure plot, claims and command. Then
the maps of claims, the league, and the newest runs below results/, down to where the time of a
request went. What is published comes from results/claims, pages, figures, conditions and league;
where no run is on this machine one small example is simulated. The file makes no network request:
styles, script and plots are embedded.
"""

import base64
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path

import pandas as pd
from PIL import Image

from harness.claims.paper import CODE, REFERENCE, Judged, Paper, load_paper, papers
from harness.claims.tables import facts_path, read_csv, read_facts
from harness.claims.texts import ours_of
from harness.config.hydra_words import word
from harness.league import kinds_of, table_of
from harness.report import pages
from harness.report.condition_maps import maps_part
from harness.report.paper_page import frames_of, printed_of, why_of
from harness.report.render import Frames, plain, render
from harness.results import scenario_runs, scenarios
from harness.runs.comparison import CHOSEN, SEED
from harness.runs.figures import header_of
from harness.runs.published import write as write_file
from harness.runs.record import RecordError, Row, config_of, read_rows
from harness.runs.table import basis
from harness.why import PARTS, parts

COLOURS = 64
"""Of a plot in the file: lines and letters need no more."""
WIDEST = 1600
"""Pixels; wider plots are made smaller."""
RUNS, OF_SCENARIO, REQUESTS = 12, 3, 100
"""Runs, at most so many of a scenario, and of each the slowest requests."""
EXAMPLE = "example"
AUTHORS = "the authors' program"
RATE = "workload.arrivals.rate_per_s"
SHOWN = (
    *("requests", "jct_s_mean", "jct_s_p99", "ttft_s_mean", "ttft_s_p99", "tpot_s_mean"),
    *("act_s_mean", "slo_attainment", "goodput_per_s", "gpu_idle_s"),
)
"""Figures of a run."""
FACTS = ("arrival_s", "prompt_tokens", "output_tokens", "preemptions")
"""What is said of a request beside its parts."""


def write(root: Path, place: Path, *, serve: Callable[[Sequence[str]], pd.DataFrame]) -> Path:
    """Write the report of a checkout to `place`; returns it.

    `serve` has the cells of a command line run and gives their rows (`harness.api.sweep`).
    ValueError where a paper's page and its claims do not go together: one is older.
    """
    every = [paper_part(root, load_paper(name)) for name in papers()]
    fidelity = plain(pages.part_of("fidelity-headline", root))
    maps, league = maps_part(root / "results"), league_part(root)
    write_file(place, rendered(root, every, fidelity, league, runs_part(root, serve), maps))
    return place


def rendered(
    root: Path,
    every: Sequence[Frames],
    fidelity: str,
    league: Frames | None,
    runs: Sequence[Frames],
    maps: Frames | None = None,
) -> str:
    """The file's text. Every value is escaped; those for the script cannot end its element."""
    data = {
        "runs": runs,
        "maps": maps,
        "parts": [name.removesuffix("_s") for name in PARTS],
        "facts": FACTS,
        "claims": {
            one["paper"].name: {row["id"]: row["more"] for row in one["rows"]} for one in every
        },
    }
    frames = {"papers": every, "fidelity": fidelity, "league": league, "runs": runs, "maps": maps}
    return render("report.html.j2", **frames, data=data, picture=partial(picture, root))


def paper_part(root: Path, paper: Paper) -> Frames:
    """What the report says of a paper; without published verdicts it has no rows.

    ValueError where the verdicts and the claims do not go together: one is older.
    """
    page, claims = root / "results" / "pages" / f"{paper.name}.md", root / "results" / "claims"
    verdicts = claims / f"{paper.name}.csv"
    if not (page.is_file() and verdicts.is_file()):
        return {"paper": paper, "rows": []}
    facts = read_facts(facts_path(claims, paper.name), paper)
    frames = frames_of(paper, read_csv(verdicts, paper), facts)
    said, counts = pages.headline(page)
    lead, _, rest = said.removeprefix("**").partition("**")
    return frames | {
        "lead": lead,
        "rest": rest.strip(),
        "basis": plain(counts).partition(". ")[2],
        "rows": [*map(_row, frames["judged"].values())],
    }


def _row(one: Judged) -> Frames:
    """A claim, with its quotation and every other setting for the script."""
    claim, ours = one.claim, ours_of(one.verdict, one.claim.unit)
    settings = [
        [AUTHORS if name == CODE else name, it.short, it.after.strip(), found.word, found.reason]
        for name, found in one.verdicts.items()
        if name != REFERENCE and (it := ours_of(found, claim.unit))
    ]
    return {
        "id": claim.id,
        "figure": claim.figure,
        "claim": claim.words,
        "paper": printed_of(one).text,
        "ours": ours.short,
        "interval": ours.after.strip(),
        "word": one.verdict.word.value,
        "why": why_of([one]),
        "more": {"quote": f"{claim.where}: {claim.quote}", "settings": settings},
    }


def picture(root: Path, name: str) -> Frames | None:
    """A published plot with its size, as a data address; None where there is none."""
    path = root / "results" / "figures" / f"{name}.png"
    if not path.is_file():
        return None
    small = BytesIO()
    with Image.open(path) as whole:
        image = whole.convert("RGB")
        image.thumbnail((WIDEST, WIDEST * 4))
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        width, height = image.size
    source = f"data:image/png;base64,{base64.b64encode(small.getvalue()).decode()}"
    return {"source": source, "width": width, "height": height}


def league_part(root: Path) -> Frames | None:
    """The league as frames, of several loads together and of each; None where none was run.

    A published league comes before one of this machine.
    """
    folders = (root / "results", root / "results" / "local")
    found = next((one for one in folders if (one / "league" / "league.csv").is_file()), None)
    if found is None:
        return None
    rows = pd.read_csv(found / "league" / "league.csv")
    about = found / "pages" / "league.md"
    said = about.read_text(encoding="utf-8").split("\n\n")[1:3] if about.is_file() else []
    kinds = kinds_of(rows).values()
    tables = {f"all of {', '.join(names)}": names for names in kinds if len(names) > 1}
    tables |= {name: [name] for names in kinds for name in names}
    return {"said": said, "tables": {it: table_of(rows, names) for it, names in tables.items()}}


def runs_part(root: Path, serve: Callable[[Sequence[str]], pd.DataFrame]) -> list[Frames]:
    """The newest whole runs below results/; an example is simulated where none is.

    ValueError where the example fails.
    """
    results = root / "results"
    folders = [*islice(newest(results), RUNS)]
    if not folders:
        simulate_example(results, serve)
        folders = [*newest(results)]
    found = []
    for folder in folders:
        try:
            found.append(run_of(folder))
        except RecordError as error:
            print(f"left out: {error}", file=sys.stderr)
        except KeyError as missing:
            print(f"{folder} is left out: it has no {missing}", file=sys.stderr)
    return found


def newest(results: Path) -> Iterator[Path]:
    """Folders of whole runs, the newest first, of a scenario each of another policy or engine."""
    runs = [run for folder in scenarios(results, []) for run in scenario_runs(folder)]
    whole = [path for run in runs if (path := run / "summary.json").is_file()]
    kinds: dict[Path, set[tuple[object, ...]]] = {}
    for path in sorted(whole, key=lambda it: it.stat().st_mtime, reverse=True):
        seen = kinds.setdefault(path.parents[1], set())
        if len(seen) < OF_SCENARIO:
            chosen = config_of(path.parent).get("chosen") or {}
            kind = tuple(chosen.get(key) for key in ("engine", "system", "policy"))
            if kind not in seen:
                yield path.parent
            seen.add(kind)


def simulate_example(results: Path, serve: Callable[[Sequence[str]], pd.DataFrame]) -> None:
    """Run a few chats on the simulator: seconds. ValueError where that fails."""
    kept = [f"name={EXAMPLE}", word("results", str(results))]
    rows = serve([*kept, "workload.requests=60", "tracking=none", "workers=1"])
    if why := str(rows["failed"].iloc[0]):
        raise ValueError(f"the example failed: {why}")


def run_of(folder: Path) -> Frames:
    """A run: what it was, its figures, and the slowest of its finished requests.

    A request is its number, `FACTS`, the number of its service, and its `PARTS` in seconds.
    """
    row = read_rows(folder.parent, only={folder.name})[folder.name]
    requests = pd.read_parquet(folder / "requests.parquet").set_index("request", drop=False)
    every = parts(requests)
    services = requests.loc[every.index, "service"].astype(str)
    medians = every.groupby(services).median()
    shown = requests.loc[every.sum(axis=1).nlargest(REQUESTS).index, list(FACTS)]
    shown = shown.astype(float).round(3)
    shown["service"] = medians.index.get_indexer(services.loc[shown.index].to_numpy())
    return {
        "name": f"{folder.parent.name}/{folder.name}",
        "setting": _setting(row),
        "engine": basis(pd.DataFrame([row])),
        "started": str(row["started"])[:19].replace("T", " "),
        "config": (folder / "config.yaml").read_text(encoding="utf-8"),
        "figures": [
            [header_of(name), value]
            for name in SHOWN
            if isinstance(value := row.get(name), int | float)
        ],
        "count": len(every),
        "services": list(medians.index),
        "medians": medians[list(PARTS)].round(4).to_numpy().tolist(),
        "requests": [*map(list, shown.join(every[list(PARTS)].round(4)).itertuples(name=None))],
    }


def _setting(row: Row) -> str:
    """The engine of a run, what it was composed of, its rate where it has one, and its seed."""
    said = [f"{row['engine']}:"]
    for name, value in row.items():
        key = name.removeprefix(CHOSEN)
        is_said = name.startswith(CHOSEN) and key not in ("scenario", "engine")
        if is_said and value not in (None, "None", "none"):
            said.append(f"{key}={value}")
    if isinstance(rate := row.get(f"config.{RATE}"), float | int):
        said.append(f"{RATE}={rate:.4g}")
    return " ".join([*said, f"seed={row.get(SEED)}"])
