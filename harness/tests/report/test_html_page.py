"""The report: every paper and figure, nothing from elsewhere, hostile texts are texts."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from harness.claims.paper import load_paper, papers
from harness.paths import ROOT
from harness.report import html_page


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of this checkout, with one run whose configuration would end a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_page, "_newest", lambda root: [_run(tmp_path_factory.mktemp("runs"))])
        place = html_page.write(ROOT, tmp_path_factory.mktemp("report") / "report.html")
    assert place.stat().st_size <= 10_000_000
    return place.read_text(encoding="utf-8")


def _run(folder: Path) -> Path:
    run = folder / "chats" / "0123456789ab"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("name: </script><b>\n")
    (run / "provenance.json").write_text('{"engine": "simulated"}')
    (run / "summary.json").write_text('{"requests": 2.0, "jct_s_mean": 2.5}')
    columns = ("finished_s", "waiting_s", "preempted_s", "prefill_s", "gpu_s", "paused_s")
    rows = [(3.0, 0.5, 0.0, 0.5, 2.0, 0.5), (2.0, 0.0, 0.0, 0.5, 2.0, 0.0)]
    pd.DataFrame(rows, columns=list(columns)).assign(request=[0, 1]).to_parquet(
        run / "requests.parquet"
    )
    return run


def test_every_figure_with_claims_is_there(text: str) -> None:
    for name in papers():
        paper = load_paper(name)
        assert f'id="{name}"' in text
        for figure in {claim.figure for claim in paper.claims.values()}:
            assert f'id="{name}-{figure}"' in text


def test_nothing_is_loaded(text: str) -> None:
    assert not re.findall(r"(?:src|href)=\"(?!data:|#)[^\"]*\"", text)
    assert not re.findall(r"fetch\(|import\(|url\(", text)


def test_a_request_is_split_into_its_parts(text: str) -> None:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    (run,) = data["runs"]
    assert data["parts"] == ["waiting", "preempted", "prefill", "decode", "paused"]
    # 0.5 s waiting, 0.5 s of prompt, 2.0 - 0.5 s of answer, 0.5 s paused.
    assert run["requests"][0] == [0, 0.5, 0.0, 0.5, 1.5, 0.5]
    assert run["config"] == "name: </script><b>\n"


def test_verdicts_of_other_claims_are_refused(tmp_path: Path) -> None:
    for place, content in {"pages/ssjf.md": "> S.\n>\n> x. y.\n", "claims/ssjf.csv": ""}.items():
        path = tmp_path / "results" / place
        path.parent.mkdir(parents=True)
        path.write_text(content or "claim,setting,verdict\na,reference,holds\n")
    with pytest.raises(ValueError, match=r"ssjf\.csv and the claims of ssjf differ in a$"):
        html_page.paper_part(tmp_path, load_paper("ssjf"))
