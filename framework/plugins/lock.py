"""A lock file: the plugins that a configuration can use, written down to be compared later.

JSON, sorted and without anything that changes by itself, so that it can be kept beside the
configuration and its changes read.  A table `schema = 1`, `plugins = [rows]`; a row is a
`framework.plugins.resolved.Row`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from framework.errors import ConfigError
from framework.plugins.resolved import ResolvedSet, Row, check_equal

SCHEMA = 1
MAKE = "framework plugins lock"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    plugins: tuple[Row, ...]


def lock_text(resolved: ResolvedSet) -> str:
    """The content of a lock file."""
    data = msgspec.json.encode(_File(schema=SCHEMA, plugins=resolved.rows))
    return msgspec.json.format(data, indent=2).decode() + "\n"


def write_lock(resolved: ResolvedSet, path: Path) -> None:
    """Raises ConfigError if the file cannot be written."""
    try:
        path.write_text(lock_text(resolved), "utf-8")
    except OSError as error:
        raise ConfigError(
            f"the lock file {path} cannot be written: {error.strerror or error}",
            mend=f"make the folder {path.parent} and give yourself the right to write there, or "
            f"name another file: {MAKE} --output FILE",
        ) from error


def read_lock(path: Path) -> ResolvedSet:
    """Raises ConfigError with the line that makes the file, if there is none or it is another."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no lock file {path}",
            expected="the plugins that may be used, written down",
            found="no file",
            mend=f"{MAKE} --output {path}",
        ) from error
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(
            f"the lock file {path} cannot be read: {error}", mend=f"{MAKE} --output {path}"
        ) from error
    if file.schema != SCHEMA:
        raise ConfigError(
            f"the lock file {path} has another schema",
            expected=SCHEMA,
            found=file.schema,
            mend=f"{MAKE} --output {path}",
        )
    return ResolvedSet(rows=file.plugins)


def check_lock(resolved: ResolvedSet, path: Path) -> None:
    """Raises PluginError with the rows in which what would be used differs from the lock."""
    check_equal(
        resolved,
        read_lock(path),
        names=("this start", str(path)),
        mend="install and configure what the lock says, or accept the change with "
        f"`{MAKE} --output {path}` under the same configuration",
    )
