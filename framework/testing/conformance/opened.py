"""Which files a call opens, heard below Python."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CODE = (".py", ".pyc", ".so", ".pyd")
_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/", "/etc/")


@dataclass(slots=True)
class Opened:
    """read, written: files; listed: folders; each once, in order.  Imports do not count, nor what
    the system tells as files."""

    read: list[Path] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)
    listed: list[Path] = field(default_factory=list)

    def outside(self, root: Path) -> list[str]:
        """Those that do not lie in a folder, with what was done to them."""
        inside = root.resolve()
        return [
            f"{what} {path}"
            for what, paths in (("reads", self.read), ("writes", self.written))
            for path in paths
            if not path.resolve().is_relative_to(inside)
        ]

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """An event of `sys.audit`."""
        if event not in ("open", "os.listdir", "os.scandir"):
            return
        name = arguments[0] if arguments else None
        if not isinstance(name, str | bytes | os.PathLike):  # a descriptor: it was opened before
            return
        path = Path(os.fsdecode(name))
        if str(path).startswith(_OF_THE_SYSTEM) or path.suffix in _CODE:
            return
        where = self.listed
        if event == "open":
            mode, flags = arguments[1:3]
            writes = isinstance(flags, int) and bool(flags & _WRITES)
            where = self.written if writes or set(mode or "") & set("wax+") else self.read
        if path not in where and not (event == "open" and _is_code(path)):
            where.append(path)


def _is_code(path: Path) -> bool:
    """Data that a library has beside its code."""
    return any(path.is_relative_to(home) for home in (sys.prefix, sys.base_prefix))


def still_open(paths: Iterable[Path]) -> set[str]:
    """Those that this process has open; none where the system does not tell."""
    there = set()
    with suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                there.add(os.readlink(f"/proc/self/fd/{number}"))
    return {str(path) for path in paths if str(path.resolve()) in there}


@cache
def _hook() -> threading.local:
    """A hook can never be taken off: there is one, which hears for whoever asks in its thread."""
    here = threading.local()

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        ears: Callable[..., None] | None = getattr(here, "ears", None)
        if ears is not None:
            here.ears = None  # what is done meanwhile opens nothing for the one that is watched
            try:
                ears(event, arguments)
            finally:
                here.ears = ears

    sys.addaudithook(hear)
    return here


@contextmanager
def opened() -> Iterator[Opened]:
    """What this thread opens within."""
    here, found = _hook(), Opened()
    here.ears = found.hear
    try:
        yield found
    finally:
        here.ears = None
