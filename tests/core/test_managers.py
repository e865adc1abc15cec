"""What the built-in cache managers find and give back, against what each kind of layer reads."""

from __future__ import annotations

from itertools import product

import pytest

from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    FullAttentionSpec,
    MambaSpec,
    MLASpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.core.kv.managers import BUILT_IN, manager_for

HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}
SPECS = [
    FullAttentionSpec(**HEADS),
    MLASpec(latent_size=3, rope_size=1, dtype="float32"),
    *(SlidingWindowSpec(**HEADS, window=window) for window in (1, 3, 4, 5, 9)),
    *(SinkWindowSpec(**HEADS, window=w, sinks=sinks) for w in (3, 5) for sinks in (0, 1, 3, 5)),
    *(ChunkedLocalSpec(**HEADS, chunk=chunk) for chunk in (1, 3, 4, 6)),
    MambaSpec(shapes=((2,),), dtypes=("float32",)),
]


def read(spec, tokens):
    """Positions before the next token, at `tokens`, that it or a later one may read."""
    if isinstance(spec, SinkWindowSpec):
        near = range(max(tokens - spec.window + 1, 0), tokens)
        return {*range(min(spec.sinks, tokens)), *near}
    if isinstance(spec, SlidingWindowSpec):
        return set(range(max(tokens - spec.window + 1, 0), tokens))
    if isinstance(spec, ChunkedLocalSpec):
        return set(range(tokens // spec.chunk * spec.chunk, tokens))
    if isinstance(spec, MambaSpec):
        return {tokens - 1} if tokens else set()
    return set(range(tokens))


@pytest.mark.parametrize("page_tokens", [1, 2, 4])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_a_manager_keeps_what_is_read_and_hits_where_that_is_there(spec, page_tokens):
    manager = manager_for(spec, [make() for make in BUILT_IN])
    for tokens in range(7 * page_tokens):
        first, last = manager.droppable(tokens, page_tokens, spec)
        kept = {position // page_tokens for position in read(spec, tokens)}
        assert set(range(first, last)) == set(range(tokens // page_tokens)) - kept
    for present in product((False, True), repeat=6):
        there = {page for page, yes in enumerate(present) if yes}
        hits = (
            count
            for count in range(6, -1, -1)
            if {p // page_tokens for p in read(spec, count * page_tokens)} <= there
        )
        assert manager.longest_hit(present, page_tokens, spec) == next(hits)
