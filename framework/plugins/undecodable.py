"""Go on where the metadata of one distribution cannot be read by any program."""

from __future__ import annotations

import logging
import os

_SWITCHES = {"PYDANTIC_DISABLE_PLUGINS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
"""Environment variables by which libraries are told not to look through all entry points."""

logger = logging.getLogger("framework.plugins")


def readable_for_all() -> None:
    """Call it before the first pydantic model is made.

    Whatever looks for entry points fails where one entry_points.txt is not UTF-8 or a link to
    itself, and does not say where; pydantic does so with its first model, torch when it is
    imported.  Then this tells libraries by their own switches to leave it, in this process and its
    children, and logs which file it is for.  Our own discovery lists it as a problem and reads the
    others."""
    from pydantic import create_model

    try:
        create_model("First")
    except (UnicodeDecodeError, OSError):
        from framework.plugins.distributions import unreadable

        found = unreadable()
        if not found:
            raise
        for name, value in _SWITCHES.items():
            os.environ.setdefault(name, value)
        logger.warning(
            "%s; other libraries are told to load no plugins of their own (%s)",
            "; ".join(found),
            ", ".join(f"{name}={os.environ[name]}" for name in _SWITCHES),
        )
