"""The command `python -m harness.claims`."""

import sys

from harness.claims.command import main

sys.exit(main())
