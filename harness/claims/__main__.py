"""The command `python -m harness.claims`."""

import sys

from harness.claims.judge import main

sys.exit(main())
