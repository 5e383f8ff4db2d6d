"""Objects from plain nodes (`_target_` and keywords), as configuration files hold them."""

import importlib
from typing import Any


def build(node: Any) -> Any:
    """What a node with `_target_` describes; its values are built likewise."""
    if not isinstance(node, dict):
        return node
    values = {name: build(value) for name, value in node.items() if name != "_target_"}
    if "_target_" not in node:
        return values
    module, _, name = node["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**values)
