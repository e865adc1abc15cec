"""How much work it is to read a body of JSON, known while it comes, before anything is read.

Reading holds the interpreter, in a thread as on the event loop, and everybody waits meanwhile.  It
goes by the number of values, not by bytes: 16 MiB of text take some milliseconds, the same of
empty lists seconds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BRANCH = 8
"""What a list, an object or a field of one weighs, as it takes that much longer than a plain value,
which weighs 1."""

ESCAPES = 8
"""So many characters of a text that are escaped weigh 1, too."""

_PIECE = 2**18
_QUOTE, _COMMA, _COLON, _LIST, _BACKSLASH, _OBJECT = b'",:[\\{'


class Weight:
    """Weighs JSON that comes in pieces.

    A comma outside of texts stands for a value, a bracket for a list or an object, a colon for a
    field.  What is no JSON gets some weight, too, and is read no further than to its fault.
    """

    def __init__(self) -> None:
        self._values = self._escapes = 0
        self._inside = False
        self._escaped = False

    @property
    def total(self) -> int:
        """Of what has come."""
        return self._values + self._escapes // ESCAPES

    def add(self, data: bytes) -> None:
        """The next piece.  Some milliseconds for each MiB, in memory that does not go by it."""
        whole = np.frombuffer(data, np.uint8)
        for start in range(0, len(whole), _PIECE):
            self._add(whole[start : start + _PIECE])

    def _add(self, piece: npt.NDArray[np.uint8]) -> None:
        quotes = piece == _QUOTE
        escaped = self._escaped_in(piece)
        self._escapes += int(np.count_nonzero(escaped))
        quotes &= ~escaped
        inside = np.logical_xor.accumulate(quotes)
        if self._inside:
            inside = ~inside
        self._inside = bool(inside[-1])
        counts = np.bincount(piece[~inside], minlength=256)
        branches = counts[_COLON] + counts[_LIST] + counts[_OBJECT]
        self._values += int(counts[_COMMA] + BRANCH * branches)

    def _escaped_in(self, piece: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
        """Which bytes stand behind a backslash that is not itself behind one."""
        marks = piece == _BACKSLASH
        escaped = np.zeros(len(piece), np.bool_)
        escaped[0] = self._escaped
        if not self._escaped and not marks.any():
            return escaped
        places = np.arange(len(piece), dtype=np.int32)
        # Of a run of backslashes every second one is a character; one that escapes the first byte
        # belongs to the run that begins there.
        others = np.maximum.accumulate(np.where(marks, np.int32(-1 - self._escaped), places))
        escaping = marks & ((places - others) % 2 == 1)
        escaped[1:] = escaping[:-1]
        self._escaped = bool(escaping[-1])
        return escaped
