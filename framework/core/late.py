"""Late inputs of several participants, checked and made into one."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np
import numpy.typing as npt

from framework.contracts.step import NOTHING_LATE, LateInputs
from framework.plugins.blame import shown


def flaw_of(part: object, rows: Container[int], vocab_size: int | None) -> str | None:
    """What is wrong with what a participant answered, if anything.

    rows: those that the participant attends; it may mask no others.
    """
    if not isinstance(part, LateInputs):
        return f"it answered {shown(part)}, not LateInputs"
    if not isinstance(part.attachments, Mapping):
        return f"attachments are {type(part.attachments).__name__}, not a mapping"
    if not all(isinstance(k, str) and isinstance(v, bytes) for k, v in part.attachments.items()):
        return "attachments are not bytes by name"
    if part.bitmask is None:
        return None
    mask = part.bitmask
    if not _is(mask, np.uint32, 2):
        return "bitmask is no uint32 array of two dimensions"
    if vocab_size is not None and mask.shape[1] != -(-vocab_size // 32):
        return f"bitmask has {mask.shape[1]} words a row, {vocab_size} tokens need another number"
    if not _is(part.bitmask_rows, np.int32, 1) or len(part.bitmask_rows) != len(mask):
        return "bitmask_rows is no int32 array with an entry for each bitmask"
    if not _is(part.covered, np.int32, 1) or len(part.covered) not in (0, len(mask)):
        return "covered is no int32 array with an entry for each bitmask"
    strange = [row for row in part.bitmask_rows.tolist() if row not in rows]
    if strange:
        return f"bitmask_rows has rows {strange[:4]}, which it does not attend"
    return _doubled(part)


def _doubled(part: LateInputs) -> str | None:
    """A row has a mask for its next token, and one after each of its drafts."""
    rows = part.bitmask_rows.tolist()
    covered = part.covered.tolist() or [0] * len(rows)
    if len({*zip(rows, covered, strict=True)}) < len(rows):
        return "bitmask_rows has a row twice, after as many drafts"
    return None


def _is(array: object, dtype: type, dimensions: int) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == dtype and array.ndim == dimensions


class LateMerge:
    """Takes parts without flaws; a row is masked by one of them at most."""

    def __init__(self) -> None:
        self._masked: list[tuple[npt.NDArray[np.uint32], LateInputs]] = []
        self._attachments: dict[str, bytes] = {}
        self._any = False

    def add(self, part: LateInputs) -> str | None:
        """Why `part` cannot join those before it, if so; else it has joined them."""
        taken = {row for _, before in self._masked for row in before.bitmask_rows.tolist()}
        both = taken.intersection(part.bitmask_rows.tolist()) if part.bitmask is not None else ()
        if both:
            return f"another participant has a bitmask for rows {sorted(both)}"
        self._any = True
        self._attachments |= part.attachments
        if part.bitmask is not None:
            self._masked.append((part.bitmask, part))
        return None

    def result(self) -> LateInputs:
        """All of them as one."""
        if not self._any:
            return NOTHING_LATE
        if not self._masked:
            return LateInputs(attachments=self._attachments)
        covered = [
            part.covered if len(part.covered) else np.zeros(len(mask), np.int32)
            for mask, part in self._masked
        ]
        return LateInputs(
            bitmask=np.concatenate([mask for mask, _ in self._masked]),
            bitmask_rows=np.concatenate([part.bitmask_rows for _, part in self._masked]),
            covered=np.concatenate(covered),
            attachments=self._attachments,
        )
