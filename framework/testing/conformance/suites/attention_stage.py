"""A cache, requests and steps for one attention backend, beside the reference.

    buffer   |page 0        |page 1        |page 2        |...
             |layer a |pad  |layer a |pad  |              pages in any order, as requests need
                                                          them; what nobody wrote is `garbage`

It does by hand what a runner does, and knows nothing of how a backend stores its pages: what is
in the cache has been written by steps before.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from framework.contracts.attention_backend import AttentionBackend, AttentionParams, CommonMetadata
from framework.contracts.cache_plan import CacheGroup, CachePlan
from framework.testing.conformance.cases import expect, expect_close
from framework.testing.conformance.suites.attention_parts import (
    Bytes,
    Options,
    Place,
    Request,
    Values,
    coarser,
    packed,
)
from framework.testing.conformance.suites.attention_reference import (
    F64,
    Features,
    Numbers,
    attend,
)


class Stage:
    """One KV group of `layers` (features that may differ in what they see, not in shapes)."""

    def __init__(
        self,
        backend: AttentionBackend,
        place: Place,
        layers: Sequence[Features],
        page_tokens: int,
        rng: np.random.Generator,
        options: Options | None = None,
    ) -> None:
        self.backend, self.place, self.layers, self.rng = backend, place, layers, rng
        self.page_tokens = page_tokens
        self.options = options or Options()
        spec = self.options.spec or layers[0].spec()
        names = tuple(f"layer{index}" for index in range(len(layers)))
        self.group = CacheGroup(spec=spec, layers=names, page_tokens=page_tokens)
        self.page_bytes = spec.page_bytes(page_tokens)
        slab = self.page_bytes + self.options.padding
        self.plan = CachePlan(
            groups=(self.group,),
            num_pages=self.options.num_pages,
            page_bytes=slab * len(layers),
            slab_bytes=slab,
            max_pages_per_request=self.options.num_pages,
            layout=self.options.layout,
        )
        self.layout = backend.layout(spec, page_tokens, self.plan.num_pages)
        self.builder = backend.builder(self.group)
        total = self.plan.num_pages * self.plan.page_bytes
        self.buffer = self._tensor(np.full(total, self.options.garbage, np.uint8), "uint8")
        self.free = [int(page) for page in rng.permutation(np.arange(1, self.plan.num_pages))]
        self.numbers = [self._numbers(features) for features in layers]
        self.params = [self._params(f, n) for f, n in zip(layers, self.numbers, strict=True)]

    def request(self, shares: Request | None = None, pages: int = 0) -> Request:
        """A new one, which may begin with the first `pages` full pages of another."""
        if shares is None:
            shape = self.layers[0]
            k = np.zeros((0, shape.num_kv_heads, shape.head_size))
            v = np.zeros((0, shape.num_kv_heads, shape.head_size_v))
            return Request([], [k] * len(self.layers), [v] * len(self.layers))
        tokens = pages * self.page_tokens
        cut = [[x[:tokens] for x in xs] for xs in (shares.k, shares.v)]
        return Request(shares.table[:pages], *cut)

    def rewind(self, request: Request, tokens: int) -> None:
        """Take the last tokens back, as when drafts were not accepted."""
        keep = request.length - tokens
        request.k = [k[:keep] for k in request.k]
        request.v = [v[:keep] for v in request.v]

    def give_back(self, request: Request) -> None:
        """Pages of which nothing is seen any more go to others, who write into them."""
        start, stop = self.layers[0].unseen(request.length, self.page_tokens)
        gone = [page for page in request.table[start:stop] if page]
        request.table[start:stop] = [0] * len(request.table[start:stop])
        self.free += gone
        if gone:
            self.fill(gone)

    def fill(self, pages: Sequence[int]) -> None:
        """Put garbage into pages of all layers."""
        content = self.content()
        for layer in range(len(self.layers)):
            for page in pages:
                content[self.span(layer, page)] = self.options.garbage
        self.buffer = self._tensor(content, "uint8")

    def span(self, layer: int, page: int) -> slice:
        """The bytes of a page of a layer."""
        offset, stride = self.plan.placement(layer)
        first = offset + page * stride
        return slice(first, first + self.page_bytes)

    def content(self) -> Bytes:
        """All bytes of the cache."""
        return self.place.bridge.array(self.buffer)

    def values(self, tokens: int) -> Values:
        """Random ones, as exact as the element types hold them."""
        drawn: list[list[F64]] = [[], [], []]
        for features in self.layers:
            sizes = (
                (features.num_heads, features.head_size, features.dtype),
                (features.num_kv_heads, features.head_size, features.dtype),
                (features.num_kv_heads, features.head_size_v, features.dtype),
            )
            for index, (heads, size, dtype) in enumerate(sizes):
                scale = self.options.magnitude if index < 2 else 1.0
                x = self.rng.normal(size=(tokens, heads, size)) * scale
                drawn[index].append(self.rounded(x, dtype))
        return Values(q=drawn[0], k=drawn[1], v=drawn[2])

    def rounded(self, values: F64, dtype: str) -> F64:
        """As an element type holds them."""
        bridge = self.place.bridge
        return bridge.array(bridge.tensor(values, dtype, self.place.facts.device)).astype(float)

    def step(
        self,
        rows: Sequence[tuple[Request, int]],
        values: Values | None = None,
        *,
        reuse: object | None = None,
        keep: bool = False,
    ) -> list[F64]:
        """Plan and run one step of (request, new tokens); the output by layer [T, heads, size_v].

        It is compared with the reference.  Then pages that are not seen any more are given back,
        unless `keep`.
        """
        values = values or self.values(sum(new for _, new in rows))
        metadata = self.begin(rows, values, reuse)
        outs = [self.run(layer, values, metadata) for layer in range(len(self.layers))]
        for layer, out in enumerate(outs):
            self.compare(rows, values, layer, out)
        for request, _ in rows if not keep else ():
            self.give_back(request)
        return outs

    def begin(
        self, rows: Sequence[tuple[Request, int]], values: Values, reuse: object | None = None
    ) -> object:
        """The metadata of a step."""
        return self.builder.plan(self.common_of(rows, values), reuse)

    def common_of(self, rows: Sequence[tuple[Request, int]], values: Values) -> CommonMetadata:
        """Enter the new tokens into the tables; what every backend is told of the step."""
        first = 0
        for request, new in rows:
            part = values.part(first, first + new)
            first += new
            request.k, request.v = [*request.k], [*request.v]
            for layer, features in enumerate(self.layers):
                k = self.rounded(part.k[layer], features.cache_dtype)
                v = self.rounded(part.v[layer], features.cache_dtype)
                request.k[layer] = np.concatenate((request.k[layer], k))
                request.v[layer] = np.concatenate((request.v[layer], v))
            while len(request.table) * self.page_tokens < request.length:
                request.table.append(self.free.pop(0))
        return self._common(rows)

    def _common(self, rows: Sequence[tuple[Request, int]]) -> CommonMetadata:
        starts = np.array([0, *itertools.accumulate(new for _, new in rows)], np.int32)
        lengths = np.array([request.length for request, _ in rows], np.int32)
        width = max(len(request.table) for request, _ in rows) + int(self.rng.integers(3))
        table = np.zeros((len(rows), width), np.int32)
        slots: list[int] = []
        for row, (request, new) in enumerate(rows):
            table[row, : len(request.table)] = request.table
            slots += [
                self.slot(request, at) for at in range(request.length)[request.length - new :]
            ]
        return CommonMetadata(
            query_starts=self._tensor(starts, "int32"),
            lengths=self._tensor(lengths, "int32"),
            page_table=self._tensor(table, "int32"),
            slot_mapping=self._tensor(np.array(slots, np.int64), "int64"),
            query_starts_host=starts,
            lengths_host=lengths,
            max_query=max(new for _, new in rows),
            max_length=int(lengths.max()),
            causal=self.layers[0].causal,
        )

    def slot(self, request: Request, position: int) -> int:
        """Where the token at `position` is stored."""
        page, offset = divmod(position, self.page_tokens)
        return request.table[page] * self.page_tokens + offset

    def run(self, layer: int, values: Values, metadata: object) -> F64:
        """One layer; the output."""
        out = self.blank(layer, len(values.q[layer]))
        self.call(layer, self.inputs(layer, values), metadata, out)
        return self.place.bridge.array(out).astype(float)

    def blank(self, layer: int, tokens: int) -> Any:
        """Room for the output; NaN where nothing is written."""
        features = self.layers[layer]
        shape = (tokens, features.num_heads, features.head_size_v)
        return self._tensor(np.full(shape, np.nan), features.dtype)

    def call(self, layer: int, inputs: tuple[Any, Any, Any], metadata: object, out: Any) -> None:
        """`run` of the backend, on tensors."""
        q, k, v = inputs
        self.backend.run(q, k, v, self.cache(layer), metadata, self.params[layer], out)

    def cache(self, layer: int) -> Any:
        """The layer's part of the buffer, in the shape that the backend asked for."""
        offset, stride = self.plan.placement(layer)
        layout = self.layout
        return self.place.bridge.view(self.buffer, layout.dtype, layout.shape, offset, stride)

    def inputs(self, layer: int, values: Values) -> tuple[Any, Any, Any]:
        """q, k and v as tensors."""
        features = self.layers[layer]
        parts = [values.q[layer], values.k[layer], values.v[layer]]
        if not self.options.parted:
            q, k, v = (self._tensor(x, features.dtype) for x in parts)
            return q, k, v
        size = len(packed(np.zeros(1), features.dtype))
        flat = np.concatenate([x.reshape(len(x), math.prod(x.shape[1:])) for x in parts], axis=1)
        whole = self._tensor(packed(flat, features.dtype), "uint8")
        made, offset = [], 0
        for x in parts:
            view = self.place.bridge.view(
                whole, features.dtype, x.shape, offset * size, flat.shape[1] * size
            )
            made.append(view)
            offset += math.prod(x.shape[1:])
        return made[0], made[1], made[2]

    def compare(
        self, rows: Sequence[tuple[Request, int]], values: Values, layer: int, out: F64
    ) -> None:
        """Violation unless the output of a layer is what the reference gives."""
        features = self.layers[layer]
        first = 0
        for row, (request, new) in enumerate(rows):
            q = values.q[layer][first : first + new]
            right = attend(
                q,
                request.k[layer],
                request.v[layer],
                request.length - new,
                features,
                self.numbers[layer],
            )
            what = f"the output of row {row} ({new} new of {request.length} tokens)"
            expect_close(out[first : first + new], right, coarser(features), what)
            first += new
        expect(len(out) == first, "the output has rows of no token")

    def _numbers(self, features: Features) -> Numbers:
        heads = features.num_heads
        sinks = self.rounded(self.rng.normal(size=heads), "float32")
        slopes = self.rounded(self.rng.uniform(0.05, 0.6, size=heads), "float32")
        return Numbers(
            # Models have their own, which need not follow from the size of a head.
            scale=float(features.head_size) ** -0.5 * float(self.rng.choice((0.7, 1.0, 1.3))),
            sinks=sinks if features.sinks else None,
            slopes=slopes if features.alibi else None,
        )

    def _params(self, features: Features, numbers: Numbers) -> AttentionParams:
        return AttentionParams(
            scale=numbers.scale,
            window=features.window,
            softcap=features.softcap,
            sinks=None if numbers.sinks is None else self._tensor(numbers.sinks, "float32"),
            alibi_slopes=None
            if numbers.slopes is None
            else self._tensor(numbers.slopes, "float32"),
            sink_tokens=features.sink_tokens,
            chunk=features.chunk,
        )

    def _tensor(self, array: Any, dtype: str) -> Any:
        return self.place.bridge.tensor(np.asarray(array), dtype, self.place.facts.device)
