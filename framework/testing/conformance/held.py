"""Where a plugin holds on to something."""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Collection, Iterable

MOST = 200_000
"""Objects that are looked at."""


def where_text_is(text: str, roots: Iterable[object], but: Collection[object] = ()) -> str:
    """What holds a string with `text` in it, within what the roots hold; "" if nothing does.

    Not looked into: `but`, modules, classes, and frames.
    """
    seen = {id(one) for one in but}
    waiting = deque(roots)
    while waiting and len(seen) < MOST:
        holder = waiting.popleft()
        # Of keys that are texts the collector does not ask.
        keys = list(holder) if isinstance(holder, dict) else []
        for one in (*gc.get_referents(holder), *keys):
            if isinstance(one, str) and text in one:
                return f"a {type(holder).__name__} with {one!r:.60}"
            plain = isinstance(one, str | bytes | int | float | type | None)
            if plain or id(one) in seen or isinstance(one, types.ModuleType | types.FrameType):
                continue
            if isinstance(one, dict) and "__builtins__" in one:  # of a module
                continue
            seen.add(id(one))
            waiting.append(one)
    return ""
