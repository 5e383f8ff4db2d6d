"""The harness. Its program is hashed first, before anything of it is loaded."""

import harness.config.inputs  # noqa: F401 - imported for its first line of work
