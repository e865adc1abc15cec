"""A lock file: the plugins that a configuration can use, written down to be compared later.

JSON, sorted and without anything that changes by itself, so that it can be kept beside the
configuration and its changes read.  An object `{"schema": 2, "plugins": [rows]}`; a row is a
`framework.plugins.resolved.Row`.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from framework.errors import ConfigError
from framework.plugins.resolved import ResolvedSet, Row, check_equal

SCHEMA = 2
MAKE = "framework plugins lock"
LARGEST = 64 << 20
"""Bytes; that of a thousand plugins has less than one of them."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What every schema has."""

    schema: int


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: int
    plugins: tuple[Row, ...]


def lock_text(resolved: ResolvedSet) -> str:
    """The content of a lock file."""
    data = msgspec.json.encode(_File(schema=SCHEMA, plugins=resolved.rows))
    return msgspec.json.format(data, indent=2).decode() + "\n"


def write_lock(resolved: ResolvedSet, path: Path) -> None:
    """Whoever reads meanwhile, and whoever writes too, finds one file or the other, whole.

    Raises ConfigError if the file cannot be written; then it is as it was.
    """
    try:
        _replace(Path(os.path.realpath(path)), lock_text(resolved))
    except (OSError, ValueError) as error:  # of a name that no file can have
        raise ConfigError(
            f"the lock file {path} cannot be written: {getattr(error, 'strerror', None) or error}",
            mend=f"make the folder {path.parent} and give yourself the right to write there, or "
            f"name another file: {MAKE} --output FILE",
        ) from error


def _replace(path: Path, text: str) -> None:
    if path.exists() and not path.is_file():  # a pipe, a terminal, the null device; no folder
        path.write_text(text, "utf-8")
        return
    made = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}")
    try:
        with made.open("x", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            made.chmod(stat.S_IMODE(path.stat().st_mode))
        made.replace(path)
    except BaseException:
        with suppress(OSError):
            made.unlink()
        raise


def read_lock(path: Path) -> ResolvedSet:
    """Raises ConfigError with the line that makes the file, if there is none or it is another."""
    mend = f"{MAKE} --output {path}"
    try:
        data = _content(path)
        head = msgspec.json.decode(data, type=_Head)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no lock file {path}",
            expected="the plugins that may be used, written down",
            found="no file",
            mend=mend,
        ) from error
    except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"the lock file {path} cannot be read: {error}", mend=mend) from error
    if head.schema != SCHEMA:
        raise ConfigError(
            f"the lock file {path} has another schema",
            expected=SCHEMA,
            found=head.schema,
            mend=mend,
        )
    try:
        rows = msgspec.json.decode(data, type=_File).plugins
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"the lock file {path} cannot be read: {error}", mend=mend) from error
    twice = _twice(row.key for row in rows)
    if twice is not None:
        raise ConfigError(
            f"the lock file {path} has {twice} twice",
            expected="a row for each plugin",
            mend=f"leave out the wrong one, or {mend}",
        )
    return ResolvedSet(rows=rows)


def _content(path: Path) -> bytes:
    """Raises OSError, also for what is no file, or one that no lock could be."""
    at_once = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # to open a pipe is to wait for ever
    with os.fdopen(os.open(path, at_once), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is no file")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OSError(f"it has more than {LARGEST} bytes")
    return data


def _twice(keys: Iterable[str]) -> str | None:
    seen = set[str]()
    for key in keys:
        if key in seen:
            return key
        seen.add(key)
    return None


def check_lock(resolved: ResolvedSet, path: Path) -> None:
    """Raises PluginError with the rows in which what would be used differs from the lock."""
    check_equal(
        resolved,
        read_lock(path),
        names=("this start", str(path)),
        mend="install and configure what the lock says, or accept the change with "
        f"`{MAKE} --output {path}` under the same configuration",
    )
