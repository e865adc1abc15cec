"""Late inputs of several participants, checked and made into one."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from framework.contracts.step import NOTHING_LATE, LateInputs
from framework.shown import shown


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
    """Takes parts without flaws."""

    def __init__(self) -> None:
        self._masked: list[Masks] = []
        self._attachments: dict[str, bytes] = {}
        self._any = False

    def add(self, part: LateInputs) -> None:
        """Whole or, where it raises, not at all."""
        attachments = dict(part.attachments)
        if part.bitmask is not None:
            rows, covered = part.bitmask_rows, part.covered
            full = covered if len(covered) else np.zeros(len(rows), np.int32)
            self._masked.append(Masks(part.bitmask, rows, full))
        self._attachments |= attachments
        self._any = True

    def result(self) -> LateInputs:
        """All of them as one."""
        if not self._any:
            return NOTHING_LATE
        if not self._masked:
            return LateInputs(attachments=self._attachments)
        masks = self._masked[0] if len(self._masked) == 1 else _joined(self._masked)
        return LateInputs(
            bitmask=masks.bits,
            bitmask_rows=masks.rows,
            covered=masks.covered,
            attachments=self._attachments,
        )


class Masks(NamedTuple):
    """bits uint32 [B, words]; rows, covered int32 [B]."""

    bits: npt.NDArray[np.uint32]
    rows: npt.NDArray[np.int32]
    covered: npt.NDArray[np.int32]


def _joined(parts: Sequence[Masks]) -> Masks:
    """A token is allowed that all allow who mask its place.  Past the last mask that one of them
    has for a row nothing is known: the masks of others end there as well."""
    bits, rows, covered = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = np.full(int(rows.max(initial=-1)) + 1, np.iinfo(np.int32).max, np.int32)
    for part in parts:
        last = np.full(len(known), -1, np.int32)
        np.maximum.at(last, part.rows, part.covered)
        known = np.where(last >= 0, np.minimum(known, last), known)
    kept = covered <= known[rows]
    bits, rows, covered = bits[kept], rows[kept], covered[kept]
    if not len(rows):
        return Masks(bits, rows, covered)
    order = np.lexsort((covered, rows))
    rows, covered = rows[order], covered[order]
    first = np.ones(len(rows), bool)
    first[1:] = (np.diff(rows) != 0) | (np.diff(covered) != 0)
    starts = np.flatnonzero(first)
    joined = np.bitwise_and.reduceat(bits[order], starts, axis=0)
    return Masks(joined, rows[starts], covered[starts])
