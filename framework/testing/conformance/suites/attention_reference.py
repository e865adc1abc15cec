"""Attention written out: slow, obvious, numpy in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from framework.contracts.attention_backend import AttentionQuery
from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    FullAttentionSpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.contracts.platform import DeviceFacts

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a layer asks of attention; fields as in `AttentionQuery` and `AttentionParams`.

    sinks, alibi: whether there are any.  several: several tokens per decode.
    """

    dtype: str
    cache_dtype: str
    head_size: int
    head_size_v: int
    num_heads: int = 4
    num_kv_heads: int = 4
    window: int | None = None
    sink_tokens: int = 0
    chunk: int | None = None
    softcap: float | None = None
    sinks: bool = False
    alibi: bool = False
    causal: bool = True
    several: bool = False

    def query(
        self, facts: DeviceFacts, tensor_api: str, page_tokens: int | None = None
    ) -> AttentionQuery:
        """The question whether this can be served."""
        return AttentionQuery(
            platform=facts.name,
            capability=facts.capability,
            features=facts.features,
            tensor_api=tensor_api,
            dtype=self.dtype,
            cache_dtype=self.cache_dtype,
            head_size=self.head_size,
            head_size_v=self.head_size_v,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            mask="causal" if self.causal else "bidirectional",
            window=self.window,
            sink_tokens=self.sink_tokens,
            chunk=self.chunk,
            softcap=self.softcap,
            alibi=self.alibi,
            sinks=self.sinks,
            several_per_decode=self.several,
            page_tokens=page_tokens,
        )

    def plain_spec(self) -> FullAttentionSpec:
        """A cache that keeps every token."""
        return FullAttentionSpec(
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            head_size_v=self.head_size_v,
            dtype=self.cache_dtype,
        )

    def spec(self) -> FullAttentionSpec:
        """A cache that keeps what is seen."""
        base = {name: getattr(self.plain_spec(), name) for name in _SHAPE}
        if self.window is not None and self.sink_tokens:
            return SinkWindowSpec(**base, window=self.window, sinks=self.sink_tokens)
        if self.window is not None:
            return SlidingWindowSpec(**base, window=self.window)
        if self.chunk is not None:
            return ChunkedLocalSpec(**base, chunk=self.chunk)
        return self.plain_spec()

    def unseen(self, computed: int, page_tokens: int) -> tuple[int, int]:
        """[start, stop): pages of which no token from position `computed` on sees any."""
        if not self.causal:
            return 0, 0
        first = 0
        if self.window is not None:
            first = max(0, computed - self.window + 1)
        if self.chunk is not None:
            first = max(first, computed // self.chunk * self.chunk)
        start = -(-self.sink_tokens // page_tokens)
        return start, max(start, first // page_tokens)


_SHAPE = ("num_kv_heads", "head_size", "head_size_v", "dtype")


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The values of a layer's parameters; sinks, slopes: [heads]."""

    scale: float
    sinks: F64 | None = None
    slopes: F64 | None = None


def seen(
    keys: npt.NDArray[np.int64], position: npt.NDArray[np.int64], features: Features
) -> npt.NDArray[np.bool_]:
    """[n, L]: which keys [L] the queries at `position` [n, 1] see."""
    if not features.causal:
        return np.ones((len(position), len(keys)), np.bool_)
    visible = keys <= position
    if features.window is not None:
        near = keys > position - features.window
        visible &= near | (keys < features.sink_tokens)
    if features.chunk is not None:
        visible &= keys >= position // features.chunk * features.chunk
    return visible


def attend(q: F64, k: F64, v: F64, first: int, features: Features, numbers: Numbers) -> F64:
    """One row: q [n, heads, size] from position `first` on, k [L, kv_heads, size],
    v [L, kv_heads, size_v] -> [n, heads, size_v]."""
    count, heads, _ = q.shape
    shared_by = heads // k.shape[1]
    keys, position = np.arange(len(k)), np.arange(first, first + count)[:, None]
    visible = seen(keys, position, features)
    out = np.zeros((count, heads, v.shape[2]))
    for head in range(heads):
        scores = q[:, head] @ k[:, head // shared_by].T * numbers.scale
        if features.softcap is not None:
            scores = features.softcap * np.tanh(scores / features.softcap)
        if numbers.slopes is not None:
            scores = scores + numbers.slopes[head] * (keys - position)
        scores[~visible] = -np.inf
        sink = -np.inf if numbers.sinks is None else numbers.sinks[head]
        top = np.maximum(scores.max(axis=1, keepdims=True, initial=-np.inf), sink)
        weights = np.exp(scores - top)
        total = weights.sum(axis=1, keepdims=True) + np.exp(sink - top)
        out[:, head] = weights / total @ v[:, head // shared_by]
    return out
