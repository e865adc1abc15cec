"""The plugin system: find, admit, load and choose plugins.

Importing this package is cheap and imports no plugin; a name below is imported when it
is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.plugins.children import hand_over, take_over
    from framework.plugins.handles import Handle
    from framework.plugins.hooks import build_hooks
    from framework.plugins.kinds import KINDS, Kind, Scope
    from framework.plugins.manifests import Facts
    from framework.plugins.policy import Policy
    from framework.plugins.records import Record, State
    from framework.plugins.registry import PluginRegistry
    from framework.plugins.resolved import ResolvedSet, resolve_plugins
    from framework.plugins.selection import Selection, explain_table, select

__all__ = [
    "KINDS",
    "Facts",
    "Handle",
    "Kind",
    "PluginRegistry",
    "Policy",
    "Record",
    "ResolvedSet",
    "Scope",
    "Selection",
    "State",
    "build_hooks",
    "explain_table",
    "hand_over",
    "resolve_plugins",
    "select",
    "take_over",
]

_HOMES = {
    "KINDS": "kinds",
    "Facts": "manifests",
    "Handle": "handles",
    "Kind": "kinds",
    "PluginRegistry": "registry",
    "Policy": "policy",
    "Record": "records",
    "ResolvedSet": "resolved",
    "Scope": "kinds",
    "Selection": "selection",
    "State": "records",
    "build_hooks": "hooks",
    "explain_table": "selection",
    "hand_over": "children",
    "resolve_plugins": "resolved",
    "select": "selection",
    "take_over": "children",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
