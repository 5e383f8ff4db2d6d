"""The command `python -m harness.report`: the pages, then the report as one HTML file."""

import sys

from harness.config.paths import ROOT
from harness.report import html_page, readme

try:
    readme.write_pages()
    html_page.write(ROOT, ROOT / "results" / "report.html")
except (ValueError, OSError) as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)
