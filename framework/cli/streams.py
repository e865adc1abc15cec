"""The standard streams: usable whatever this process was started with."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
"""The last: a plugin closed what is not its own."""


def open_streams() -> None:
    """A closed stream becomes the null device.  What an output's encoding lacks is written
    as an escape: an answer must not be lost for one of its characters."""
    # In this order; each open takes the lowest free descriptor, which is the stream's own.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def give_up(error: OSError) -> NoReturn:
    """End with status 1 when output can no longer be written; another error is raised.

    The reader of a pipe that left is told nothing.
    """
    if not isinstance(error, BrokenPipeError):
        if error.errno not in _NO_ROOM:
            raise error
        print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
    # What is still buffered would fail once more at the interpreter's exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)
