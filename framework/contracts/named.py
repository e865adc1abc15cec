"""Values that users make by naming their fields."""

from __future__ import annotations

from typing import Any

import msgspec

from framework.plugins.near import did_you_mean

_make = type(msgspec.Struct).__call__  # found once: requests make structs one after the other


class NamedFields(type(msgspec.Struct)):  # type: ignore[misc]
    """Of a struct that tells near matches where a name has a slip."""

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """Raises TypeError for a name that is no field, as every Python class does."""
        try:
            return _make(cls, *args, **fields)
        except TypeError:
            check_names(cls, fields)
            raise


def check_names(struct: type, fields: dict[str, Any]) -> None:
    """Raises TypeError for a name that is no field of the struct."""
    known = struct.__struct_fields__  # type: ignore[attr-defined]
    for name in fields:
        if name not in known:
            raise TypeError(
                f"{struct.__name__} has no field {name!r}{did_you_mean(name, known)}"
            ) from None
