"""The command `python -m harness.fitting`."""

import sys

from harness.fitting.tables import main

sys.exit(main())
