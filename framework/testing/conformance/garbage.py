"""Collections of garbage that look only at what a clause made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def of_its_own() -> Iterator[None]:
    """Within, `gc.collect` finds garbage that was made within, and nothing older.

    What others left behind is so no fault of the plugin, and the objects of a large library
    (torch has half a million) are not looked at.  At the end all objects count again, also those
    that somebody had frozen before.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
