"""What the programs of a step work on: tiles of queries, and pieces of keys.

A tile holds some consecutive tokens of one row, with all query heads that share a KV head:

    row of a tile    0 1 .. group-1 | group .. | ...        tokens of the row, in order
                     heads of token |  next    |

A row with few tokens (a decode, or several tokens per decode) is one small tile, whose keys are
cut into pieces of SPLIT tokens that are computed side by side and then merged (Flash-Decoding,
Dao and others 2023).  All other rows are cut into large tiles that walk over all keys themselves
(FlashAttention-2, Dao 2023).  Where a row is cut follows from the row alone, never from those
beside it: that is what makes a row's output the same in any batch, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SMALL, LARGE = 16, 64
"""Rows of a tile at least; 16 is the fewest that a matrix unit takes."""
SPLIT = 512
"""Keys of a piece; a multiple of every block of keys."""

I32 = npt.NDArray[np.int32]


def power_of_two(number: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """rows: of a tile.  whole: int32 [2, W], row of the step and first token of each tile that
    walks over all keys.  pieces: int32 [3, P], row, first token and first key of each piece.
    merged: int32 [4, M], row, first token, first piece and number of pieces of each tile whose
    pieces are merged."""

    rows: int
    whole: I32
    pieces: I32
    merged: I32


def _counted(counts: I32) -> I32:
    """0 .. counts[0] - 1, 0 .. counts[1] - 1, and so on."""
    total = int(counts.sum())
    return (np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)).astype(np.int32)


def tiles_of(starts: I32, lengths: I32, group: int) -> tuple[Tiles, Tiles]:
    """(small, large) tiles of a step.

    starts: int32 [R + 1], lengths: int32 [R], as in `CommonMetadata`.  group: query heads for each
    KV head.
    """
    wide = power_of_two(group)
    small, large = max(SMALL, wide), max(LARGE, wide)
    tokens = np.diff(starts)
    few = (tokens > 0) & (tokens * wide <= small)
    row = np.flatnonzero(few).astype(np.int32)
    cuts = -(-lengths[row] // SPLIT)
    once, cut = row[cuts == 1], row[cuts > 1]
    counts = cuts[cuts > 1].astype(np.int32)
    of_piece = np.repeat(cut, counts)
    first_piece = (np.cumsum(counts) - counts).astype(np.int32)
    little = Tiles(
        rows=small,
        whole=np.stack((once, starts[once])),
        pieces=np.stack((of_piece, starts[of_piece], _counted(counts) * SPLIT)),
        merged=np.stack((cut, starts[cut], first_piece, counts)),
    )
    row = np.flatnonzero((tokens > 0) & ~few).astype(np.int32)
    each = large // wide
    counts = (-(-tokens[row] // each)).astype(np.int32)
    of_tile = np.repeat(row, counts)
    none = np.zeros((4, 0), np.int32)
    much = Tiles(
        rows=large,
        whole=np.stack((of_tile, starts[of_tile] + _counted(counts) * each)),
        pieces=none[:3],
        merged=none,
    )
    return little, much
