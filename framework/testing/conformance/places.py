"""Which line of a stack to show to the author of a plugin."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import framework

_STDLIB = sysconfig.get_path("stdlib")
_CORE = f"{Path(framework.__file__).parent}/"


def innermost(frames: Sequence[tuple[str, int]]) -> str:
    """ " in FILE:LINE" of the last (file, line) that is neither of the standard library nor of the
    core: what the author of a plugin can change.  Without any, of the last of the standard library;
    "" where there is only the core, which waited for somebody else."""
    others = [frame for frame in frames if not frame[0].startswith(_CORE)]
    own = [frame for frame in others if not _is_standard(frame[0])]
    if not own and len(others) < len(frames):
        return ""
    return "".join(f" in {file}:{line}" for file, line in (own or others)[-1:])


def stack_of(text: str) -> list[tuple[str, int]]:
    """What faulthandler wrote down, outermost first."""
    _, _, stack = text.partition("(most recent call first):")
    found = re.findall(r'^ *File "(.+)", line (\d+) in ', stack, re.MULTILINE)
    return [(file, int(line)) for file, line in reversed(found)]


def _is_standard(file: str) -> bool:
    inside = file.startswith(_STDLIB) and "site-packages" not in file[len(_STDLIB) :]
    return inside or file.startswith("<frozen ")
