"""Name the metadata that no program can read, whoever stumbles over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from framework.errors import PluginError


@contextmanager
def undecodable_is_named() -> Iterator[None]:
    """Around the first import of a pydantic model.  Whatever looks for entry points fails where an
    entry_points.txt is not UTF-8 or a link to itself, pydantic included, and does not say where;
    this raises PluginError that does."""
    try:
        yield
    except (UnicodeDecodeError, OSError) as error:
        from framework.plugins.distributions import unreadable

        found = unreadable()
        if not found:
            raise
        raise PluginError(
            "; ".join(found),
            mend="reinstall that distribution, or remove the folder",
        ) from error
