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
        self._causal, self._page_tokens = common.causal, page_tokens
        starts, lengths = common.query_starts.contiguous(), common.lengths.contiguous()
        table, slots = common.page_table.contiguous(), common.slot_mapping.contiguous()
        self._owned = starts, lengths, table, slots
        self._plan = _native.plan(
            len(lengths),
            len(slots),
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
        heads, head_size = q.shape[1:]
        kv_heads, head_size_v = v.shape[1:]
        _check(q, cache, heads, kv_heads, head_size_v)
        sinks, slopes = _floats(params.sinks), _floats(params.alibi_slopes)
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


def _floats(values: torch.Tensor | None) -> torch.Tensor | None:
    return None if values is None else values.detach().float().contiguous()


def _check(
    q: torch.Tensor, cache: torch.Tensor, heads: int, kv_heads: int, head_size_v: int
) -> None:
    """UnsupportedError for tensors that `answer` rejects."""
    if q.dtype not in _CODES:
        raise refuse("type of queries", " or ".join(FLOATS), q.dtype)
    if cache.dtype not in _CODES:
        raise refuse("type of cache", " or ".join(FLOATS), cache.dtype)
    if heads % kv_heads or heads // kv_heads > MOST_HEADS:
        raise refuse(
            "number of heads", f"a multiple of {kv_heads}, at most {MOST_HEADS} times it", heads
        )
    if head_size_v % LANES:
        raise refuse("head_size_v", f"a multiple of {LANES}", head_size_v)
