"""Which line of a stack to show to the author of a plugin."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence

_STDLIB = sysconfig.get_path("stdlib")


def innermost(frames: Sequence[tuple[str, int]]) -> str:
    """ " in FILE:LINE" of the last (file, line) that is not of the standard library; of the last
    of all if there is no other, and "" if there is none."""
    if not frames:
        return ""
    own = [frame for frame in frames if not _is_standard(frame[0])]
    file, line = (own or frames)[-1]
    return f" in {file}:{line}"


def stack_of(text: str) -> list[tuple[str, int]]:
    """What faulthandler wrote down, outermost first."""
    _, _, stack = text.partition("(most recent call first):")
    found = re.findall(r'^ *File "(.+)", line (\d+) in ', stack, re.MULTILINE)
    return [(file, int(line)) for file, line in reversed(found)]


def _is_standard(file: str) -> bool:
    inside = file.startswith(_STDLIB) and "site-packages" not in file[len(_STDLIB) :]
    return inside or file.startswith("<frozen ")
