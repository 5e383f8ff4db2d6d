"""The command `python -m harness.report`."""

import sys

from harness.report.readme import main

sys.exit(main())
