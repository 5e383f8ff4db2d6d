"""How a policy of your own compares: `python -m harness rank POLICY [LOAD ...]`.

POLICY is a Python file with a policy, `mine.py` or `mine.py:Class`, or a YAML file that names one
(see ADDING.md). What a constructor wants of `rule` and limits is given as vLLM has it. The policy
first passes the checks of every policy: it drains every load, does the same twice, only looks, does
not idle, and fast path and reference agree; with vLLM installed also that the simulator and vLLM's
scheduler run the same batches. Then it is served beside the others of the league on the loads that
are named (default: one of chats and one of code) and its place is printed. The exit code is 1 where
a check fails, 2 for bad input.
"""

import argparse
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich.console import Console
from rich.table import Table

from harness.config.engine_limits import AUTO, LIMITS
from harness.config.hydra_words import word
from harness.config.paths import ROOT
from harness.config.trust import TRUSTED_PACKAGES
from harness.config.yaml_files import FURTHER_POLICY, read_yaml
from harness.report.league import LOADS, OF_APPLICATIONS, OF_REQUESTS, league
from harness.runs.figures import header_of

TESTS = ("test_every_policy.py", "test_invariants.py", "test_engines_agree.py")
"""Of harness/tests/engines: what holds for every policy."""
USUAL = ("sharegpt", "azure_code")
RULE = read_yaml(ROOT / "scenarios" / "policy" / "vllm.yaml")["rule"]
"""vLLM's, in the engine's limits; a constructor may ask for one, or for limits."""


def policy_class(path: Path, name: str) -> type:
    """The policy of a file: the class of this name, or the only one that schedules.

    Raises ValueError where there is none or several.
    """
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
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


def checked(policy: Path) -> tuple[int, list[str]]:
    """How many checks a policy passes, and a line for each that it fails or that is left out."""
    tests = [str(ROOT / "harness" / "tests" / "engines" / name) for name in TESTS]
    words = ["-q", "-k", policy.stem, "-p", "no:cacheprovider", "-rfEs", *tests]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode not in (0, 1):
        raise ValueError(f"the checks did not run: {(ran.stdout + ran.stderr).strip()[-500:]}")
    passed = re.search(r"(\d+) passed", ran.stdout)
    said = [line for line in ran.stdout.splitlines() if re.match("(FAILED|ERROR|SKIPPED) ", line)]
    return int(passed.group(1)) if passed else 0, said


def shown(found: pd.DataFrame, name: str, console: Console) -> None:
    """Print where a policy stands: its median regret and rank by figure, beside the best."""
    judged = found[found["figure"].isin({*OF_REQUESTS, *OF_APPLICATIONS})]
    count = judged["policy"].nunique()
    table = Table(title=f"{name} among {count} policies; over loads and shares of capacity")
    for heading in ("figure", "median regret", "best median regret", "first or not beaten"):
        table.add_column(heading)
    for figure, rows in judged.groupby("figure", sort=False):
        medians = rows.groupby("policy")["regret"].median().sort_values()
        own = rows[rows["policy"] == name]
        first = f"{int((own['rank'] == 1).sum())} of {len(own)}"
        best = f"{medians.iloc[0]:+.0%} ({medians.index[0]})"
        table.add_row(header_of(str(figure)), f"{medians[name]:+.0%}", best, first)
    console.print(table)


def ranked(policy: Path, loads: Sequence[str], console: Console) -> int:
    """Check a policy and serve it in the league; the exit status."""
    passed, said = checked(policy)
    failed = [line for line in said if not line.startswith("SKIPPED")]
    console.print(f"{passed} checks of every policy passed, {len(failed)} failed", highlight=False)
    for line in said:
        console.print(f"  {line}", highlight=False, markup=False)
    search = word("hydra.searchpath", [f"file://{policy.parent.parent}"])
    own, about = league(loads, policies=[policy.stem], more=(search,))
    console.print(about, highlight=False)
    shown(own, policy.stem, console)
    return 1 if failed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m harness rank", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("policy", metavar="POLICY")
    parser.add_argument("loads", nargs="*", default=USUAL, help=f"of {', '.join(LOADS)}")
    given = parser.parse_args(arguments)
    place, _, name = given.policy.partition(":")
    path = Path(place).expanduser().resolve()
    try:
        if not path.is_file():
            raise ValueError(f"{place} is no file")
        if unknown := [load for load in given.loads if load not in LOADS]:
            raise ValueError(f"{unknown[0]} is no load; there are {', '.join(LOADS)}")
        with tempfile.TemporaryDirectory() as folder:
            is_code = path.suffix == ".py"
            policy = written(path, name, Path(folder)) if is_code else path
            home = path.parent if is_code else path.parent.parent.parent
            package = yaml.safe_load(policy.read_text(encoding="utf-8"))["_target_"].split(".")[0]
            sys.path.insert(0, str(home))
            os.environ["PYTHONPATH"] = f"{home}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
            os.environ[FURTHER_POLICY], os.environ[TRUSTED_PACKAGES] = str(policy), package
            return ranked(policy, given.loads, Console(width=160))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
