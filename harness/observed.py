"""How far the simulator is off your own server: `python -m harness observed LOG --model CONFIG`.

LOG is what a server did (`harness/workloads/server_logs.py` lists the kinds). The simulator serves
the same arrivals and lengths with the model, GPU, limits and split that are stated. Two factors of
its seconds are fitted to the half of the requests that came first: one of all iterations, and one
of what prompts add to them. Of TTFT, TPOT and JCT they make the log ratios, simulated over
observed, small: first the quartiles over requests, by least squares, then from there the sum of the
median sizes, by a search that needs no slopes, since batches change in steps. The other half is
predicted with them and without: its errors are printed. The factors are words of later runs:
`hardware.scale_seconds` and `hardware.scale_prompt_seconds`.

What no factor can express shows as error of the second half: time that a client or a front end adds
to each request, prompts that begin alike (the log does not say which), another limit or another
policy than stated (words such as engine.max_num_seqs=N or system/dispatch=NAME).

From Python, `fit(...)` returns the same.
"""

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from scipy.optimize import least_squares, minimize

from harness import api
from harness.compare import gpus_of
from harness.config.engine_limits import LIMITS
from harness.config.hydra_words import word
from harness.runs import published
from harness.runs.building import cell_of
from harness.runs.cells import compute
from harness.runs.config import RunConfig
from harness.runs.latencies import latencies
from harness.runs.published import RESULTS
from harness.runs.table import print_table
from harness.workloads.server_logs import ServerLog, read_server_log
from harness.workloads.trace_columns import ARRIVAL, OUTPUT_TOKENS, PROMPT_TOKENS
from harness.workloads.workload import Floats

MEASURES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "jct_s": "JCT"}
KEYS = ("scale_seconds", "scale_prompt_seconds")
"""Of `hardware`: what is fitted."""
QUARTILES = (0.25, 0.5, 0.75)
LEAST_REQUESTS = 20
"""Of either half, with two tokens or more that did not come at once."""
MOST_FACTOR = 8.0
STEP, NEAR = 0.06, 1e-3
"""Of a factor: the relative difference that slopes are taken over, and where the search ends."""
MOST_SLOPES, MOST_SERVED = 8, 60
"""Slopes that least squares take, of three runs each, and runs of the search from there."""
WHICH = ("too_long", "requests", "requests_from", "rate_scale", "window", "no_output")
"""Keys of `workload=trace` that say which requests are served, and when."""
OWN_WORDS = {
    **{"workload": "", "hardware": " (--gpu)", "system": "", "results": "", "matrix": ""},
    **{"workload.file": "", "workload.model": " (--model)", "workload.arrivals": ""},
    **{f"workload.{key}": ": all requests of the log are served" for key in WHICH},
    **{"hardware.gpu_count": "", "hardware.nvlink_island": "", "hardware.cost_draw": ""},
    **{f"hardware.{key}": ": they are fitted" for key in KEYS},
    "system.placement": " (--tensor-parallel, --data-parallel)",
}
"""Keys that no further word may have, and what says their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedServer:
    """A log, and what served it; `more` are further words of `harness/run.py`.

    The requests are written to `folder` as a trace.
    """

    log: Path
    model: str
    gpu: str = "h100_80g_8"
    tensor_parallel: int = 1
    data_parallel: int = 1
    more: Sequence[str] = ()
    folder: Path | None = None

    @property
    def trace(self) -> Path:
        """Where the requests are written."""
        return (self.folder or RESULTS / "local" / "observed" / self.log.stem) / "requests.csv"

    @property
    def words(self) -> list[str]:
        """The configuration, but for the factors."""
        gpus = self.tensor_parallel * self.data_parallel
        island = min(gpus, gpus_of(self.gpu))
        return [
            *("workload=trace", f"hardware={self.gpu}", "system=fixed", "policy=vllm"),
            *(f"hardware.gpu_count={gpus}", f"hardware.nvlink_island={island}"),
            f"system.placement.tensor_parallel={self.tensor_parallel}",
            f"system.placement.data_parallel={self.data_parallel}",
            word("workload.file", str(self.trace.absolute())),
            word("workload.model", self.model),
            *("tracking=none", *self.more),
        ]

    def check(self) -> None:
        """Raise ValueError for words that are not free, and a split that no machine has."""
        if self.tensor_parallel > (machine := gpus_of(self.gpu)):
            raise ValueError(
                f"{self.log}: a copy has {self.tensor_parallel} GPUs, {self.gpu} has {machine}"
            )
        for given in self.more:
            key = given.lstrip("+~").partition("=")[0]
            for own, how in OWN_WORDS.items():
                if key == own or ("." in own and key.startswith(f"{own}.")):
                    raise ValueError(f"{given}: observed sets {own} itself{how}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedFactors:
    """What was fitted to the first half of a log, and how it predicts the second.

    `log` is the file's name, `words` are those of later runs. `factors` has each key of `hardware`
    with its value. `errors` has, by measure, the median and the P90 of the relative error's size
    and its median with sign (bias), before the fit and after, of the requests withheld. `fitted`
    requests came first, `withheld` after them. `notes` say what was read, served and assumed.
    `split` are copies of the model and GPUs of each. `is_at_limit` says that a factor lies at an
    end of what is searched, and the last note why that may be.
    """

    log: str
    words: tuple[str, ...]
    factors: Mapping[str, float]
    errors: pd.DataFrame
    fitted: int
    withheld: int
    notes: tuple[str, ...]
    split: tuple[int, int]
    is_at_limit: bool

    @property
    def basis(self) -> str:
        """Whose seconds they are, and where else they are taken to hold."""
        copies, gpus = self.split
        return (
            f"seconds fitted to {self.log}, a server of {copies} x {gpus} GPUs; other splits, "
            "limits and loads are taken to be off by the same factors"
        )

    @property
    def error(self) -> float:
        """The larger of the median errors of TTFT and TPOT after the fit, as a share."""
        return float(self.errors.loc[["ttft_s", "tpot_s"], "median_after"].max())


@dataclass(slots=True)
class _Simulation:
    """Serves the requests of a log at given factors, and keeps what was served."""

    config: RunConfig
    observed: pd.DataFrame
    served: dict[tuple[float, ...], pd.DataFrame] = field(default_factory=dict)

    def ratios(self, factors: Sequence[float] | Floats) -> pd.DataFrame:
        """Logarithms of simulated over observed measures, the machine's values times factors."""
        key = tuple(float(it) for it in factors)
        if key not in self.served:
            hardware = self.config.hardware.model_copy(update=self.values(key))
            cell = cell_of(self.config.model_copy(update={"hardware": hardware}))
            measured = latencies(compute(cell).requests, horizon_s=np.inf)[[*MEASURES]]
            logs = np.log((measured / self.observed).to_numpy(np.float64))
            self.served[key] = pd.DataFrame(logs, columns=[*MEASURES])
        return self.served[key]

    def values(self, factors: Sequence[float] | Floats) -> dict[str, float]:
        """The machine's values of the keys times the factors."""
        hardware = self.config.hardware
        pairs = zip(KEYS, factors, strict=True)
        return {key: float(getattr(hardware, key) * factor) for key, factor in pairs}


def fit(asked: ObservedServer, say: Callable[[str], None] = lambda _: None) -> FittedFactors:
    """Fit the factors to the first half of a log and predict the second; `say` hears the notes.

    Raises ValueError, in one sentence, for bad input and for a log that is too short.
    """
    asked.check()
    log = read_server_log(asked.log)
    half = _half(asked.log, log)
    _write_trace(asked.trace, log)
    config = api.configuration(*asked.words)
    simulation = _Simulation(config, _measures(log))
    notes = [*_read_lines(asked, log), *_served_lines(asked, config)]
    for note in notes:
        say(note)
    found = _search(simulation, half)
    is_at_limit = not ((found > 1.01 / MOST_FACTOR) & (found < 0.99 * MOST_FACTOR)).all()
    if is_at_limit:
        notes.append(
            f"{asked.log.name}: a factor lies at the limit of {MOST_FACTOR:g}: the server has "
            "probably another model, GPU, split or limit than stated, or its log other units"
        )
        say(notes[-1])
    factors = simulation.values(found)
    before, after = (simulation.ratios(it)[half:] for it in (np.ones(len(KEYS)), found))
    parts = [_errors(before).add_suffix("_before"), _errors(after).add_suffix("_after")]
    return FittedFactors(
        log=asked.log.name,
        words=tuple(f"hardware.{key}={value:.4g}" for key, value in factors.items()),
        factors=factors,
        errors=pd.concat(parts, axis="columns"),
        fitted=half,
        withheld=len(log.requests) - half,
        notes=tuple(notes),
        split=(asked.data_parallel, asked.tensor_parallel),
        is_at_limit=is_at_limit,
    )


def _search(simulation: _Simulation, half: int) -> Floats:
    """The factors that fit the first `half` requests."""
    bounds = (1 / MOST_FACTOR, MOST_FACTOR)
    near = least_squares(
        lambda factors: _quartiles(simulation.ratios(factors)[:half]),
        np.ones(len(KEYS)),
        bounds=bounds,
        diff_step=STEP,
        xtol=NEAR,
        ftol=NEAR,
        max_nfev=MOST_SLOPES,
    ).x
    found = minimize(
        lambda factors: float(simulation.ratios(factors)[:half].abs().median().sum()),
        near,
        method="Nelder-Mead",
        bounds=[bounds] * len(KEYS),
        options={
            "initial_simplex": [near, near * [1 + STEP / 2, 1 - STEP], near * [1, 1 + STEP]],
            **{"xatol": NEAR, "fatol": NEAR / 10, "maxfev": MOST_SERVED},
        },
    )
    best: Floats = found.x
    return best


def _half(path: Path, log: ServerLog) -> int:
    """How many requests are fitted to. ValueError where either half has too few."""
    half = len(log.requests) // 2
    streams = _measures(log)["tpot_s"].notna()
    least = int(min(streams[:half].sum(), streams[half:].sum()))
    if least < LEAST_REQUESTS:
        raise ValueError(
            f"{path} has {least} requests with a TPOT in a half of it, a fit needs {LEAST_REQUESTS}"
        )
    return half


def _write_trace(path: Path, log: ServerLog) -> None:
    """The requests as a file of `workload=trace`, with all digits of their times."""
    path.parent.mkdir(parents=True, exist_ok=True)
    log.requests[[ARRIVAL, PROMPT_TOKENS, OUTPUT_TOKENS]].to_csv(path, index=False)


def _measures(log: ServerLog) -> pd.DataFrame:
    """Seconds of TTFT, TPOT and JCT of each logged request.

    TPOT is NaN of single tokens, and both TTFT and TPOT are where an answer came at once.
    """
    names = {"end_s": "finished_s"}
    rows = log.requests.rename(columns=names).assign(started_s=log.requests["first_token_s"])
    found = latencies(rows, horizon_s=np.inf)[[*MEASURES]]
    return found.assign(ttft_s=found["ttft_s"].mask(_came_at_once(log)))


def _came_at_once(log: ServerLog) -> "pd.Series[bool]":
    """Which answers of several tokens have no first one before their end."""
    rows = log.requests
    return (rows[OUTPUT_TOKENS] > 1) & (rows["first_token_s"] >= rows["end_s"])


def _quartiles(ratios: pd.DataFrame) -> Floats:
    """Quartiles over requests of each measure's ratios, in one row."""
    found: Floats = ratios.quantile(list(QUARTILES)).to_numpy(np.float64).ravel()
    return found


def _errors(ratios: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of simulated measures: median and P90 of their size, and median with sign."""
    relative = pd.DataFrame(np.expm1(ratios.to_numpy(np.float64)), columns=ratios.columns)
    size = relative.abs()
    columns = {"median": size.median(), "p90": size.quantile(0.9), "bias": relative.median()}
    return pd.DataFrame(columns)


def _read_lines(asked: ObservedServer, log: ServerLog) -> list[str]:
    """What was read, in lines."""
    rows, seen = log.requests, _measures(log).median()
    prompt, answer = rows[PROMPT_TOKENS].mean(), rows[OUTPUT_TOKENS].mean()
    medians = ", ".join(f"{name} {seen[key]:.3g} s" for key, name in MEASURES.items())
    what = f"{asked.log.name}, {log.kind}: {len(rows):,} requests in {rows[ARRIVAL].max():,.4g} s"
    lengths = f"mean prompt {prompt:,.0f} and answer {answer:,.0f} tokens"
    whole = int(_came_at_once(log).sum())
    untimed = f"; {whole:,} answers came at once and have no TTFT and TPOT" if whole else ""
    return [
        f"read: {what}, {lengths}; observed medians: {medians}{untimed}",
        *(f"{asked.log.name}: {note}" for note in log.notes),
    ]


def _served_lines(asked: ObservedServer, config: RunConfig) -> list[str]:
    """What serves it in the simulator, in lines."""
    cell = cell_of(config)
    engine = cell.config["engine"]
    assert isinstance(engine, Mapping)
    limits = " and ".join(f"{limit} {int(engine[limit]):,}" for limit in LIMITS)
    copies = f"tensor parallel {asked.tensor_parallel}, data parallel {asked.data_parallel}"
    return [
        f"simulated: {asked.model} on {asked.gpu}, {copies}, {limits}; no prompt begins as another",
    ]


def _meaning(found: FittedFactors) -> str:
    """The factors in a sentence."""
    seconds, prompts = found.factors.values()
    return (
        f"fitted to the first {found.fitted:,} requests: iterations without prompts take "
        f"{seconds:.3g} times as long as the profile has them, and what prompts add to an "
        f"iteration {seconds * prompts:.3g} times ({seconds:.3g} x {prompts:.3g})"
    )


def _table(found: FittedFactors) -> pd.DataFrame:
    """Errors of the requests withheld, a row per measure."""
    table = pd.DataFrame(index=pd.Index([*MEASURES.values()], name="relative error"))
    for when in ("before", "after"):
        for column in ("median", "p90", "bias"):
            sign = "+" if column == "bias" else ""
            cells = [f"{it:{sign}.1%}" for it in found.errors[f"{column}_{when}"]]
            table[f"{column} {when}"] = cells
    return table


def _title(found: FittedFactors) -> str:
    return f"the {found.withheld:,} requests withheld, before and after the fit"


def shown(found: FittedFactors, console: Console) -> None:
    """Print the factors with what they mean, and errors of the requests withheld."""
    console.print(_meaning(found), highlight=False)
    console.print(f"words of later runs: {' '.join(found.words)}", highlight=False)
    print_table(_table(found), console, _title(found))


def follow(asked: ObservedServer, page: str = "") -> None:
    """Fit and print. Raises ValueError for bad input.

    A `page` is the name by which pages/plan has what was found, with the log beside it.
    """
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False)
    found = fit(asked, say=lambda line: console.print(line, highlight=False))
    shown(found, console)
    if not page:
        return
    folder = published.place("plans", publish=True) / page
    kept = folder / f"log{asked.log.suffix}"
    published.write(kept, asked.log.read_text(encoding="utf-8"))
    split = f"--tensor-parallel {asked.tensor_parallel} --data-parallel {asked.data_parallel}"
    words = [published.shown(kept), *asked.more, "--model", asked.model, "--gpu", asked.gpu]
    content = {
        "title": f"{asked.model} on {asked.gpu}, observed",
        "command": f"observed {shlex.join(words)} {split}",
        "notes": found.notes,
        "meaning": _meaning(found),
        "words": found.words,
        "errors_of": _title(found),
        "errors": _table(found).reset_index().to_dict("records"),
    }
    published.write(folder / "observed.json", f"{json.dumps(content, indent=1)}\n")
