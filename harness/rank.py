"""How a policy of your own compares: `python -m harness rank POLICY [LOAD ...]`.

POLICY is a Python file with a policy, `mine.py` or `mine.py:Class`, or a YAML file that names one
(see ADDING.md). What a constructor wants of `rule` and limits is given as vLLM has it. The policy
first passes the checks of every policy (`harness.policy_checks`): it drains every load, does the
same twice, only looks, does not idle, and fast path and reference agree; with vLLM installed also
that the simulator and vLLM's scheduler run the same batches. Then it is served beside the others of
the league on the loads that are named (default: one of chats and one of code). Its figures over
those of vLLM are printed by load, and its place among all. The exit code is 1 where a check fails,
2 for bad input.
"""

import inspect
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.console import Console

from harness.config.build import TARGET
from harness.config.engine_limits import AUTO, LIMITS
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.config.trust import TRUSTED_PACKAGES
from harness.config.yaml_files import read_yaml
from harness.league import REFERENCE, check_loads, league
from harness.policy_checks import NotOfferedError, every_check
from harness.runs.comparison import table_of
from harness.runs.figures import header_of
from harness.runs.table import print_table

USUAL = ("sharegpt", "azure_code")
RULE = read_yaml(ROOT / "scenarios" / "policy" / "vllm.yaml")["rule"]
"""vLLM's, in the engine's limits; a constructor may ask for one, or for limits."""


def policy_class(path: Path, name: str) -> type:
    """The policy of a file on the path of modules: of this name, or the only one that schedules.

    Raises ValueError where there is none or several.
    """
    try:
        module = import_module(path.stem)
    except Exception as error:
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from None
    own = [
        one
        for one in vars(module).values()
        if inspect.isclass(one) and one.__module__ == path.stem and hasattr(one, "schedule")
    ]
    found = [one for one in own if not name or one.__name__ == name]
    if len(found) != 1:
        names = ", ".join(one.__name__ for one in own) or "none"
        raise ValueError(f"{path} has policies {names}; name one as {path.name}:CLASS")
    return found[0]


def written(path: Path, name: str, folder: Path) -> Path:
    """A file of the configuration that names the policy of a Python file.

    Raises ValueError for an argument of its constructor that is neither known nor has a default.
    """
    chosen = policy_class(path, name)
    node: dict[str, Any] = {"_target_": f"{path.stem}.{chosen.__name__}"}
    offered = {"costs", "cluster", "seed", "host_memory"}
    for parameter in list(inspect.signature(chosen).parameters.values()):
        if parameter.name == "rule":
            node["rule"] = RULE
        elif parameter.name in LIMITS:
            node[parameter.name] = AUTO
        elif parameter.default is parameter.empty and parameter.name not in offered:
            raise ValueError(
                f"{chosen.__name__} wants {parameter.name}: give it a default, or name the policy "
                "in a YAML file with its constants (ADDING.md)"
            )
    target = folder / "conf" / "policy" / f"{path.stem}.yaml"
    target.parent.mkdir(parents=True)
    target.write_text(yaml.safe_dump(node, sort_keys=False), encoding="utf-8")
    return target


def checked(policy: Path) -> tuple[int, list[str], list[str]]:
    """How many checks a policy passes, and a line for each that it fails, or that is left out."""
    passed, failed, left_out = 0, [], []
    for name, check in every_check(policy):
        try:
            check()
        except NotOfferedError as lack:
            left_out.append(f"left out: {name}: {lack}")
        except Exception as error:
            said = " ".join(str(error).split()) or type(error).__name__
            failed.append(f"FAILED {name}: {said}")
        else:
            passed += 1
    return passed, failed, left_out


def place_of(found: pd.DataFrame, name: str) -> pd.DataFrame:
    """Where a policy stands: its median regret by figure, beside the best, and how often first."""
    ranked = found.dropna(subset="rank")
    rows = []
    for figure, at in ranked.groupby("figure", sort=False):
        medians = at.groupby("policy")["regret"].median().sort_values()
        own = at[at["policy"] == name]
        first = f"{int((own['rank'] == 1).sum())} of {len(own)}"
        best = f"{medians.iloc[0]:+.0%} ({medians.index[0]})"
        rows.append((header_of(str(figure)), f"{medians[name]:+.0%}", best, first))
    names = ["figure", "median regret", "best median regret", "first or not beaten"]
    return pd.DataFrame(rows, columns=names).set_index("figure")


def ranked(policy: Path, loads: Sequence[str], console: Console) -> int:
    """Check a policy and serve it in the league; the exit status."""
    passed, failed, left_out = checked(policy)
    lines = (f"{passed} checks of every policy passed, {len(failed)} failed", *failed, *left_out)
    for line in lines:
        console.print(line, highlight=False, markup=False)
    found, about = league(loads, policies=[policy.stem], more=(search_word(policy),))
    console.print(about, highlight=False)
    own = found[(found["policy"] == policy.stem) & found["rank"].notna()]
    for name, at in own.groupby("load", sort=False):
        title = f"{policy.stem} over {REFERENCE} on {name}, by share of capacity and KV"
        print_table(table_of(at, ["share", "kv"], "figure", "ratio"), console, title)
    title = f"{policy.stem} among {found['policy'].nunique()} policies, over all of these"
    print_table(place_of(found, policy.stem), console, title)
    return 1 if failed else 0


def _target(policy: Path) -> str:
    """The class that a YAML file names. Raises ValueError where it names none."""
    node = read_yaml(policy)
    if not isinstance(node, dict) or not isinstance(node.get(TARGET), str):
        raise ValueError(f"{policy} names no policy: it has no {TARGET}")
    return str(node[TARGET])


@contextmanager
def offered(given: str) -> Iterator[Path]:
    """The YAML file of a policy of FILE.py[:CLASS] or FILE.yaml, which may be served meanwhile.

    `search_word` finds it. Raises ValueError where there is no such file, or no policy in it.
    """
    place, _, name = given.partition(":")
    path = Path(place).expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"{place} is no file")
    is_code = path.suffix == ".py"
    home = path.parent if is_code else path.parent.parent.parent
    sys.path.insert(0, str(home))
    with tempfile.TemporaryDirectory() as folder:
        policy = written(path, name, Path(folder)) if is_code else path
        os.environ["PYTHONPATH"] = f"{home}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        os.environ[TRUSTED_PACKAGES] = _target(policy).split(".")[0]
        yield policy


def search_word(policy: Path) -> str:
    """The word with which Hydra finds a policy's file."""
    return word("hydra.searchpath", [f"file://{policy.parent.parent}"])


def rank(given: str, loads: Sequence[str]) -> int:
    """Rank a policy of a file, FILE.py[:CLASS] or FILE.yaml; the exit status. Raises ValueError."""
    check_loads(loads)
    with offered(given) as policy:
        return ranked(policy, loads or USUAL, Console(width=160))
