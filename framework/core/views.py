"""What plugins are shown and must not change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

T = TypeVar("T")


def read_only(record: T) -> T:
    """A dataclass with the same values, whose arrays and mappings cannot be written to.  The
    original keeps its own, so that nothing of what others do with it changes."""
    return cast("T", replace(cast("Any", record), **_views(record)))


def _views(record: object) -> dict[str, Any]:
    found = {f.name: getattr(record, f.name) for f in fields(cast("Any", record)) if f.init}
    return {name: _view(value) for name, value in found.items()}


def _view(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        view = value.view()
        view.flags.writeable = False
        return view
    if isinstance(value, Mapping):
        return MappingProxyType(value)
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return tuple(read_only(part) for part in value)
    return value
