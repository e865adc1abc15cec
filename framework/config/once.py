"""What may be given once."""

from __future__ import annotations

from typing import Any

from framework.errors import ConfigError


def put_once(found: dict[str, Any], key: str, value: object, what: str, where: str = "") -> None:
    """found[key] = value.

    Raises ConfigError for a key that is there, which says `what`, "twice" and `where`, and not the
    value: that may be a secret.
    """
    if key in found:
        raise ConfigError(
            f"{what} twice{where}",
            expected="one value of each",
            mend="leave one of them out",
        )
    found[key] = value
