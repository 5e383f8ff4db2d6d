"""The command `python -m harness.report`: the pages, then the report as one HTML file."""

import argparse
import sys

from harness.config.paths import ROOT
from harness.report import html_page, pages

argparse.ArgumentParser(prog="python -m harness.report", description=__doc__).parse_args()
try:
    pages.write_pages()
    html_page.write(ROOT, ROOT / "results" / "report.html")
except (ValueError, OSError) as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
