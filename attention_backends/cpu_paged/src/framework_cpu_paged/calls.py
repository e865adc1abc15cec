"""Calls of the part in C, with tensors as addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # before _native, which looks for torch's thread pool when it is imported

from framework.contracts.attention_backend import AttentionParams, CommonMetadata
from framework_cpu_paged import _native
from framework_cpu_paged.answer import FLOATS, LANES, MOST_HEADS, check_mask, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

_CODES: Mapping[torch.dtype, int] = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class Step:
    """Metadata of one step and group; owns what the plan in C points into."""

    def __init__(self, common: CommonMetadata, page_tokens: int) -> None:
        """Raises UnsupportedError for tensors of other types or shapes than `CommonMetadata` has:
        the part in C reads them by their addresses."""
        self._causal, self._page_tokens = common.causal, page_tokens
        rows, self._tokens = common.lengths.numel(), common.slot_mapping.numel()
        self._owned = (
            _whole("query starts", common.query_starts, torch.int32, (rows + 1,)),
            _whole("lengths", common.lengths, torch.int32, (rows,)),
            _whole("page table", common.page_table, torch.int32, (rows, None)),
            _whole("slot mapping", common.slot_mapping, torch.int64, (self._tokens,)),
        )
        starts, lengths, table, slots = self._owned
        self._plan = _native.plan(
            rows,
            self._tokens,
            starts.data_ptr(),
            lengths.data_ptr(),
            table.data_ptr(),
            table.stride(0),
            slots.data_ptr(),
            int(common.causal),
        )

    def run(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cache: torch.Tensor,
        params: AttentionParams,
        out: torch.Tensor,
    ) -> None:
        """As `AttentionBackend.run`."""
        check_mask(params, self._causal)
        _check_types(q, k, v, cache, out)
        heads, kv_heads, head_size, head_size_v = _check_shapes(q, k, v, out, self._tokens)
        _check_cache(cache, kv_heads, self._page_tokens * (head_size + head_size_v))
        sinks = _floats("sinks", params.sinks, heads)
        slopes = _floats("alibi_slopes", params.alibi_slopes, heads)
        _native.run(
            self._plan,
            (q.data_ptr(), k.data_ptr(), v.data_ptr(), cache.data_ptr(), out.data_ptr()),
            (q.stride(0), k.stride(0), v.stride(0), cache.stride(0)),
            (
                _CODES[q.dtype],
                _CODES[cache.dtype],
                heads,
                kv_heads,
                head_size,
                head_size_v,
                self._page_tokens,
            ),
            (
                params.window or 0,
                params.chunk or 0,
                params.sink_tokens,
                params.scale,
                params.softcap or 0.0,
                0 if sinks is None else sinks.data_ptr(),
                0 if slopes is None else slopes.data_ptr(),
            ),
            torch.get_num_threads(),
        )


def _whole(
    what: str, values: torch.Tensor, dtype: torch.dtype, shape: tuple[int | None, ...]
) -> torch.Tensor:
    """Contiguous; None in `shape` is any number."""
    if values.dtype is not dtype or not values.is_cpu:
        raise refuse(f"type of {what}", f"{dtype} on the CPU", _type(values))
    found = tuple(values.shape)
    if len(found) != len(shape) or any(
        n not in (None, m) for n, m in zip(shape, found, strict=False)
    ):
        raise refuse(f"shape of {what}", shape, found)
    return values.contiguous()


def _floats(what: str, values: torch.Tensor | None, heads: int) -> torch.Tensor | None:
    if values is None:
        return None
    if tuple(values.shape) != (heads,) or not values.is_cpu:
        found = f"{tuple(values.shape)} on {values.device}"
        raise refuse(what, f"a number for each of {heads} heads, on the CPU", found)
    return values.detach().float().contiguous()


def _type(values: torch.Tensor) -> str:
    return f"{values.dtype} on {values.device}"


# All of these are asked in every layer of every step: each is a few tenths of a microsecond.


def _check_types(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, out: torch.Tensor
) -> None:
    """UnsupportedError for types that `answer` rejects, and for those that differ."""
    dtype = q.dtype
    if dtype not in _CODES:
        raise refuse("type of queries", " or ".join(FLOATS), dtype)
    if cache.dtype not in _CODES:
        raise refuse("type of cache", " or ".join(FLOATS), cache.dtype)
    if not (k.dtype is dtype and v.dtype is dtype and out.dtype is dtype):
        found = ", ".join(str(each.dtype) for each in (k, v, out))
        raise refuse("type of keys, values or result", f"{dtype}, as queries have", found)
    if not (q.is_cpu and k.is_cpu and v.is_cpu and cache.is_cpu and out.is_cpu):
        found = ", ".join(str(each.device) for each in (q, k, v, cache, out))
        raise refuse("device of q, k, v, cache or out", "cpu", found)


def _check_shapes(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, tokens: int
) -> tuple[int, int, int, int]:
    """heads, kv_heads, head_size and head_size_v.  UnsupportedError for what `answer` rejects, and
    for shapes that do not fit together or whose numbers do not lie as `AttentionBackend.run` says.
    """
    if not q.dim() == k.dim() == v.dim() == out.dim() == 3:
        found = ", ".join(str(each.dim()) for each in (q, k, v, out))
        raise refuse("number of dimensions of q, k, v or out", 3, found)
    count, heads, head_size = q.shape
    _, kv_heads, head_size_v = v.shape
    if kv_heads < 1 or heads < 1 or heads % kv_heads or heads // kv_heads > MOST_HEADS:
        expected = f"a multiple of {kv_heads}, at most {MOST_HEADS} times it"
        raise refuse("number of heads", expected, heads)
    if head_size < 1 or head_size_v < 1 or head_size_v % LANES:
        raise refuse("head_size_v", f"a multiple of {LANES}", head_size_v)
    fits = k.shape == (tokens, kv_heads, head_size) and v.shape[0] == count == tokens
    if not fits or out.shape != (tokens, heads, head_size_v):
        raise refuse(
            "shape of q, k, v or out",
            f"[{tokens}, heads, head_size], [{tokens}, kv_heads, head_size], "
            f"[{tokens}, kv_heads, head_size_v], [{tokens}, heads, head_size_v]",
            ", ".join(str([*each.shape]) for each in (q, k, v, out)),
        )
    # Without tokens nothing is read, and strides may be anything.
    if tokens and not (_is_dense(q) and _is_dense(k) and _is_dense(v) and out.is_contiguous()):
        raise refuse(
            "order of numbers",
            "q, k, v whose heads lie side by side within a token, a contiguous out",
            ", ".join(str(each.stride()) for each in (q, k, v, out)),
        )
    return heads, kv_heads, head_size, head_size_v


def _is_dense(values: torch.Tensor) -> bool:
    """Whether each part along the first dimension is contiguous."""
    _, outer, inner = values.stride()
    if inner == 1 and outer == values.shape[2]:
        return True
    # Where a dimension has one place, torch may give it any stride.
    _, count, size = values.shape
    return (inner == 1 or size == 1) and (outer == size or count == 1)


def _check_cache(cache: torch.Tensor, kv_heads: int, width: int) -> None:
    """UnsupportedError for another shape than that of `layout`."""
    if cache.dim() != 3 or cache.shape[1:] != (kv_heads, width) or not _is_dense(cache):
        raise refuse(
            "shape of cache",
            f"[pages, {kv_heads}, {width}], contiguous within a page",
            f"{[*cache.shape]} with strides {cache.stride()}",
        )
