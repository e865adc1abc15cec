"""Parts of a file as arrays over memory maps of their own.

What is copied out of one map of a whole file stays in memory beside its copy for as long as
anything of that map is in use.  Here each part goes when its array does.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt


class MappedFile:
    """Keeps the file open: one that is replaced meanwhile is read to its end as it was."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = path.open("rb")

    def part(self, start: int, count: int) -> npt.NDArray[np.uint8]:
        """Bytes [start, start + count).  Writing to them changes this process only.

        Raises ValueError where the file is shorter, OSError where it cannot be mapped.
        """
        if not count:
            return np.zeros(0, np.uint8)
        begin = start - start % mmap.ALLOCATIONGRANULARITY
        length = start - begin + count
        mapped = mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_COPY, offset=begin)
        return np.frombuffer(mapped, np.uint8, count, start - begin)
