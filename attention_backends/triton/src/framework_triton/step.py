"""A step: what its layers share, and the launches of each.  Imports torch and triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from framework.errors import UnsupportedError
from framework_triton.answer import FLOATS, INTERPRETER, MOST_HEADS, check_params, refuse
from framework_triton.kernels import attend, merge, write
from framework_triton.work import SPLIT, Tiles, power_of_two, tiles_of

if TYPE_CHECKING:
    from framework.contracts.attention_backend import AttentionParams, CommonMetadata

_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
_LEAST = 16
"""Of each side of a product: what a matrix unit takes."""
_WRITTEN = 32
"""Pairs of a token and a KV head that one program writes."""


def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter.

    Raises UnsupportedError where the variable was changed after triton had been imported, so that
    some functions are compiled and some are not.
    """
    ours, theirs = (not isinstance(f, triton.runtime.JITFunction) for f in (attend, tl.sum))
    if ours != theirs:
        raise UnsupportedError(
            f"{INTERPRETER} was changed after triton had been imported",
            expected="the same value from the start of the process",
            found="one that differs between triton's import and the first step",
            mend=f"set {INTERPRETER} before the process starts",
        )
    return ours


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """`Tiles`, with its arrays where the kernels read them."""

    rows: int
    whole: torch.Tensor
    pieces: torch.Tensor
    merged: torch.Tensor


class Step:
    """Metadata of one step and group."""

    def __init__(self, common: CommonMetadata) -> None:
        self.common = common
        # By query heads for each KV head; a group of layers has one such number, which its first
        # layer tells.
        self._tiles: dict[int, tuple[_OnDevice, ...]] = {}

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: torch.Tensor,
        params: AttentionParams,
        out: torch.Tensor,
    ) -> None:
        """Write k and v, then attend; see the contract."""
        in_interpreter = interpreted()
        _check(q, k, in_interpreter)
        check_params(params, self.common.causal)
        _write(k, v, cache, self.common.slot_mapping)
        for tiles in self._of_group(q.shape[1] // k.shape[1], q.device):
            launch = _Launch(self.common, params, tiles, q, cache, v.shape[-1], in_interpreter)
            launch.whole(out)
            launch.in_pieces(out)

    def _of_group(self, group: int, device: torch.device) -> tuple[_OnDevice, ...]:
        found = self._tiles.get(group)
        if found is None:
            common = self.common
            made = tiles_of(common.query_starts_host, common.lengths_host, group)
            found = self._tiles[group] = tuple(_moved(tiles, device) for tiles in made)
        return found


def _moved(tiles: Tiles, device: torch.device) -> _OnDevice:
    arrays = (tiles.whole, tiles.pieces, tiles.merged)
    return _OnDevice(tiles.rows, *(torch.from_numpy(array).to(device) for array in arrays))


def _check(q: torch.Tensor, k: torch.Tensor, in_interpreter: bool) -> None:
    """UnsupportedError for tensors that `answer` rejects."""
    if q.dtype not in _TYPES:
        raise refuse("type of queries", " or ".join(FLOATS), q.dtype)
    if q.shape[1] % k.shape[1]:
        raise refuse("number of heads", f"a multiple of {k.shape[1]}", q.shape[1])
    if q.shape[1] // k.shape[1] > MOST_HEADS:
        raise refuse("number of heads", f"at most {MOST_HEADS} for each KV head", q.shape[1])
    if q.device.type == "cpu" and not in_interpreter:
        needed = f"a device that Triton compiles for, or {INTERPRETER}=1"
        raise refuse("device", needed, q.device.type)


def _wide(size: int) -> int:
    return max(_LEAST, power_of_two(size))


def key_blocks(size: int, wide: bool, in_interpreter: bool = False) -> dict[str, int]:
    """Keys of a block, and how many blocks are on their way at a time, such that what lies in
    shared memory stays under 99 KiB: what a program may have on devices of capability 8.6 and 8.9.

    size: of a head.  wide: products of float32, each of which takes twice the room.  The
    interpreter has no such memory, and takes its time for each operation, on however many keys.
    """
    keys = 64 if size <= 128 else 32
    if wide and not in_interpreter:
        return {"BLOCK": keys // 2, "num_stages": 1}
    return {"BLOCK": keys, "num_stages": 2}


def _write(k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, slots: torch.Tensor) -> None:
    tokens, kv_heads, size = k.shape
    if not tokens:
        return
    write[(triton.cdiv(tokens * kv_heads, _WRITTEN),)](
        k,
        v,
        cache,
        slots,
        tokens,
        k.stride(0),
        v.stride(0),
        cache.stride(0),
        HEADS=kv_heads,
        SIZE=size,
        SIZE_V=v.shape[-1],
        PAGE=cache.shape[2],
        BLOCK=_WRITTEN,
        WIDE=_wide(size),
        WIDE_V=_wide(v.shape[-1]),
    )


class _Launch:
    """The launches of one layer on tiles of one size."""

    def __init__(
        self,
        common: CommonMetadata,
        params: AttentionParams,
        tiles: _OnDevice,
        q: torch.Tensor,
        cache: torch.Tensor,
        size_v: int,
        in_interpreter: bool,
    ) -> None:
        self.common, self.params, self.tiles = common, params, tiles
        self.q, self.cache, self.size_v = q, cache, size_v
        self.in_interpreter = in_interpreter
        kv_heads = cache.shape[1]
        group = q.shape[1] // kv_heads
        self.shape = {
            "KV_HEADS": kv_heads,
            "GROUP": group,
            "GROUP_WIDE": power_of_two(group),
            "SIZE_V": size_v,
            "WIDE_V": _wide(size_v),
            "TILE": tiles.rows,
            "HAS_SINKS": params.sinks is not None,
        }
        # Where the types differ, none of the two holds what the other does; and the interpreter
        # has no arithmetic in bfloat16.
        narrow = q.dtype == cache.dtype and not (in_interpreter and q.dtype == torch.bfloat16)
        self.compute = _TYPES[q.dtype] if narrow else tl.float32

    def whole(self, out: torch.Tensor) -> None:
        """Tiles that walk over all their keys."""
        if self.tiles.whole.shape[1]:
            self._attend(self.tiles.whole, out, out, out, piece=False)

    def in_pieces(self, out: torch.Tensor) -> None:
        """Tiles whose keys are cut, and merged then."""
        pieces, merged, common = self.tiles.pieces, self.tiles.merged, self.common
        if not pieces.shape[1]:
            return
        room = (pieces.shape[1], self.shape["KV_HEADS"], self.tiles.rows)
        sums = self.q.new_empty((*room, self.shape["WIDE_V"]), dtype=torch.float32)
        best, total = (self.q.new_empty(room, dtype=torch.float32) for _ in range(2))
        self._attend(pieces, sums, best, total, piece=True)
        sinks = out if self.params.sinks is None else self.params.sinks
        merge[(merged.shape[1], self.shape["KV_HEADS"])](
            sums,
            best,
            total,
            common.query_starts,
            merged,
            sinks,
            out,
            merged.shape[1],
            **self.shape,
        )

    def _attend(
        self,
        work: torch.Tensor,
        out: torch.Tensor,
        best: torch.Tensor,
        total: torch.Tensor,
        *,
        piece: bool,
    ) -> None:
        common, params, q, cache = self.common, self.params, self.q, self.cache
        size, count = q.shape[-1], work.shape[1]
        attend[(count, self.shape["KV_HEADS"])](
            q,
            cache,
            common.page_table,
            common.query_starts,
            common.lengths,
            work,
            # Pointers that are not read, where there are none.
            q if params.sinks is None else params.sinks,
            q if params.alibi_slopes is None else params.alibi_slopes,
            out,
            best,
            total,
            count,
            q.stride(0),
            cache.stride(0),
            common.page_table.stride(0),
            params.scale,
            params.softcap or 1.0,
            params.window or 1,
            params.sink_tokens,
            params.chunk or 1,
            SIZE=size,
            WIDE=_wide(size),
            PAGE=cache.shape[2],
            **key_blocks(max(size, self.size_v), self.compute == tl.float32, self.in_interpreter),
            SPLIT=SPLIT,
            CAUSAL=common.causal,
            HAS_SOFTCAP=params.softcap is not None,
            HAS_WINDOW=params.window is not None,
            HAS_CHUNK=params.chunk is not None,
            HAS_SLOPES=params.alibi_slopes is not None,
            PIECE=piece,
            COMPUTE=self.compute,
            **self.shape,
        )
