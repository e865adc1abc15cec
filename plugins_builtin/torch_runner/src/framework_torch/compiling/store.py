"""Compiled code in files, one for each piece.

    NAME.code    a line of JSON that says what the code is of, then the code

The name is a hash of all that the code depends on, so that a change of any of it finds nothing.
Code is run: what others may write to is not read, and what is not whole is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

FORMAT = 1
SUFFIX = ".code"
HEAD = 64 * 1024
"""Bytes of a file in which its first line has to end."""


def default_folder() -> Path:
    """In the user's folder for caches."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "framework" / "code"


class Store:
    """notes: what went wrong, a sentence each.  No error of the file system is raised: without the
    folder the code is compiled at every start, and a note says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        self._usable = self._prepare()

    def get(self, made_of: Mapping[str, object]) -> bytes | None:
        """The code that is kept for exactly this, or None."""
        if not self._usable:
            return None
        path = self._path(made_of)
        try:
            with path.open("rb") as file:
                why = _not_ours(os.fstat(file.fileno()))
                code = None if why else _read(file.readline(HEAD), file.read(), path.stem)
        except FileNotFoundError:
            return None
        except OSError as error:
            why, code = str(error), None
        if code is None:
            self.drop(made_of, why or "it is damaged, or no such file")
        return code

    def drop(self, made_of: Mapping[str, object], why: str) -> None:
        """Remove what cannot be used, with a note."""
        path = self._path(made_of)
        self.notes.append(f"compiler: {path} is not used, and compiled anew: {why}")
        with contextlib.suppress(OSError):
            path.unlink()

    def put(self, made_of: Mapping[str, object], code: bytes) -> bool:
        """Whether it is kept.  Others see the whole of it or nothing, whoever else writes it."""
        if not self._usable:
            return False
        path = self._path(made_of)
        head = {
            "format": FORMAT,
            "name": path.stem,
            "bytes": len(code),
            "sha256": hashlib.sha256(code).hexdigest(),
            "of": made_of,
        }
        line = json.dumps(head, default=str, sort_keys=True).encode()
        try:
            with tempfile.NamedTemporaryFile(
                dir=self.folder, prefix=f".{path.stem[:16]}-", delete=False
            ) as file:
                try:
                    file.write(line + b"\n" + code)
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(file.name, path)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(file.name)
                    raise
        except OSError as error:
            self._unusable(f"cannot be written ({error.strerror or error})")
            return False
        return True

    def _path(self, made_of: Mapping[str, object]) -> Path:
        text = json.dumps({"format": FORMAT, **made_of}, default=str, sort_keys=True)
        return self.folder / (hashlib.sha256(text.encode()).hexdigest() + SUFFIX)

    def _prepare(self) -> bool:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            why = _not_ours(self.folder.stat())
            if not why and not os.access(self.folder, os.W_OK | os.X_OK):
                why = "cannot be written"
        except OSError as error:
            why = f"cannot be used ({error.strerror or error})"
        if why:
            self._unusable(why)
        return not why

    def _unusable(self, why: str) -> None:
        self._usable = False
        self.notes.append(
            f"compiler: the folder {self.folder} {why}, so that code is compiled at every start; "
            "name another with --plugin-option model_runner.torch.compile_cache=FOLDER"
        )


def _not_ours(found: os.stat_result) -> str:
    """Why others could have put code there; empty if they could not."""
    if not hasattr(os, "geteuid"):
        return ""
    if found.st_uid not in (0, os.geteuid()):
        return f"belongs to another user ({found.st_uid})"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by others"
    return ""


def _read(line: bytes, code: bytes, name: str) -> bytes | None:
    """None for anything but the whole of what was written under that name."""
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        return None
    expected = {"format": FORMAT, "name": name, "bytes": len(code)}
    if not isinstance(head, dict) or any(head.get(key) != expected[key] for key in expected):
        return None
    return code if head.get("sha256") == hashlib.sha256(code).hexdigest() else None
