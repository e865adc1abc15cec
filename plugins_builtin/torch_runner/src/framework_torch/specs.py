"""What attention layers keep, as cache specs."""

from __future__ import annotations

from dataclasses import dataclass

from framework.contracts.kv_cache_spec import (
    EncoderOnlySpec,
    FullAttentionSpec,
    SlidingWindowSpec,
)


def attention_spec(
    num_kv_heads: int, head_size: int, head_size_v: int, dtype: str, window: int | None
) -> FullAttentionSpec:
    """Of a layer that sees all tokens before its own, or the last `window`, its own among
    them."""
    if window is None:
        return FullAttentionSpec(
            num_kv_heads=num_kv_heads, head_size=head_size, head_size_v=head_size_v, dtype=dtype
        )
    return SlidingWindowSpec(
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        head_size_v=head_size_v,
        dtype=dtype,
        window=window,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderAttentionSpec(EncoderOnlySpec):
    """Of a layer whose tokens see all of their prompt, inside one step: nothing is kept."""

    num_kv_heads: int
    head_size: int
    head_size_v: int
