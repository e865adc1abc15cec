"""Attention over pages with plain tensor operations, one row at a time.

positions of a row   |0 . sinks |.... low |low ........... p .......... length|
                     | gathered | not     | gathered from pages, in float32   |
                     |          | touched | query at p sees low' .. p         |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from framework_sdpa.answer import FLOATS, refuse

if TYPE_CHECKING:
    from framework.contracts.attention_backend import AttentionParams, CommonMetadata

# Queries of a row are taken in pieces, so that the scores [heads, queries, keys] stay small.
SCORE_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Row:
    """Tokens [first, last) of the step; the first has position `position`, and `length`
    tokens of the request are in the cache."""

    first: int
    last: int
    position: int
    length: int


def check(q: torch.Tensor, k: torch.Tensor) -> None:
    """UnsupportedError for tensors that `answer` rejects."""
    if q.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise refuse("type of queries", " or ".join(FLOATS), q.dtype)
    if q.shape[1] % k.shape[1]:
        raise refuse("number of heads", f"a multiple of {k.shape[1]}", q.shape[1])


def write(
    k: torch.Tensor, v: torch.Tensor, cache: torch.Tensor, slot_mapping: torch.Tensor
) -> None:
    """Put k [T, kv_heads, head_size] and v [T, kv_heads, head_size_v] into their places."""
    page_tokens, head_size = cache.shape[1], k.shape[-1]
    pages = torch.div(slot_mapping, page_tokens, rounding_mode="floor")
    offsets = slot_mapping - pages * page_tokens
    cache[..., :head_size][pages, offsets] = k.to(cache.dtype)
    cache[..., head_size:][pages, offsets] = v.to(cache.dtype)


def attend(
    q: torch.Tensor,
    cache: torch.Tensor,
    common: CommonMetadata,
    params: AttentionParams,
    out: torch.Tensor,
) -> None:
    """Fill out [T, heads, head_size_v]; rows without queries are passed over."""
    starts, lengths = common.query_starts_host, common.lengths_host
    for index in range(len(lengths)):
        first, last, length = int(starts[index]), int(starts[index + 1]), int(lengths[index])
        step = max(1, SCORE_ELEMENTS // (q.shape[1] * max(1, length)))
        for begin in range(first, last, step):
            end = min(last, begin + step)
            row = Row(begin, end, length - (last - begin), length)
            out[begin:end] = _attend_row(
                q[begin:end], cache, common.page_table[index], row, params, common.causal
            )


def attend_inside(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    common: CommonMetadata,
    params: AttentionParams,
    out: torch.Tensor,
) -> None:
    """Fill out [T, heads, head_size_v]: each token sees all tokens of its row in this step."""
    starts, group = common.query_starts_host, q.shape[1] // k.shape[1]
    for index in range(len(starts) - 1):
        own = slice(int(starts[index]), int(starts[index + 1]))
        if own.start < own.stop:
            row = (part[own].float().transpose(0, 1) for part in (q, k, v))
            queries, keys, values = (
                part if n == 0 else part.repeat_interleave(group, dim=0)
                for n, part in enumerate(row)
            )
            found = functional.scaled_dot_product_attention(
                queries, keys, values, scale=params.scale
            )
            out[own] = found.transpose(0, 1).to(out.dtype)


def _gather(cache: torch.Tensor, table: torch.Tensor, low: int, high: int) -> torch.Tensor:
    """K and V of positions low .. high.

    Pages before are not touched: they may be the null page, whose content is meaningless and
    need not even be finite.
    """
    page_tokens = cache.shape[1]
    first_page, last_page = low // page_tokens, -(-high // page_tokens)
    pages = cache[table[first_page:last_page].long()]
    start = first_page * page_tokens
    return pages.flatten(0, 1)[low - start : high - start].float()


def _lowest(position: int, params: AttentionParams) -> int:
    """First position that the query at `position` sees, sink tokens aside."""
    low = 0 if params.window is None else max(0, position - params.window + 1)
    if params.chunk is not None:
        low = max(low, position // params.chunk * params.chunk)
    return low


def _attend_row(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    row: Row,
    params: AttentionParams,
    causal: bool,
) -> torch.Tensor:
    """q [n, heads, head_size] -> [n, heads, head_size_v] in float32."""
    count, heads, head_size = q.shape
    kv_heads = cache.shape[2]
    high = row.position + count if causal else row.length
    low = _lowest(row.position, params)
    both, at = _gather(cache, table, low, high), torch.arange(low, high, device=q.device)
    sinks = min(params.sink_tokens, low)
    if sinks:
        both = torch.cat((_gather(cache, table, 0, sinks), both))
        at = torch.cat((torch.arange(sinks, device=q.device), at))
    keys, values = both[..., :head_size], both[..., head_size:]
    grouped = q.float().reshape(count, kv_heads, heads // kv_heads, head_size)
    scores = torch.einsum("nkgd,lkd->kgnl", grouped, keys) * params.scale
    scores = scores.reshape(heads, count, len(at))
    if params.softcap is not None:
        scores = params.softcap * torch.tanh(scores / params.softcap)
    query_at = torch.arange(row.position, row.position + count, device=q.device)[:, None]
    if params.alibi_slopes is not None:
        scores = scores + params.alibi_slopes.float()[:, None, None] * (at - query_at)
    if causal:
        scores = scores.masked_fill(_hidden(query_at, at, params), float("-inf"))
    weights = _softmax(scores, params.sinks)
    weights = weights.reshape(kv_heads, heads // kv_heads, count, len(at))
    return torch.einsum("kgnl,lkd->nkgd", weights, values).reshape(count, heads, -1)


def _hidden(query_at: torch.Tensor, at: torch.Tensor, params: AttentionParams) -> torch.Tensor:
    """[n, L]: which keys at `at` [L] the queries at `query_at` [n, 1] do not see."""
    hidden = at > query_at
    if params.window is not None:
        hidden = hidden | ((at <= query_at - params.window) & (at >= params.sink_tokens))
    if params.chunk is not None:
        hidden = hidden | (at < query_at // params.chunk * params.chunk)
    return hidden


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Over keys; a sink is one more score per head that takes weight and has no value."""
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    column = sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
    return torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]
