"""How long a request may be, and how much memory its cache may take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from framework.contracts.model import AttentionLayer
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import CacheBudget, Platform
from framework.errors import ConfigError
from framework.plugins.blame import blaming, expect


def shorter(one: int | None, other: int | None) -> int | None:
    """The smaller of two limits that may be none."""
    limits = [limit for limit in (one, other) if limit is not None]
    return min(limits, default=None)


def longest_of(context: RunnerContext, able: int | None) -> int:
    asked = context.max_model_len
    if asked is not None and able is not None and asked > able:
        raise ConfigError(
            "max_model_len is longer than the model allows",
            expected=f"at most {able}",
            found=asked,
            mend="lower max_model_len, or scale the rotary embedding in config.json",
        )
    longest = asked if asked is not None else able
    if longest is None:
        raise ConfigError(
            "the model does not say how long a sequence may be",
            expected="max_model_len",
            found="nothing",
            mend="set max_model_len",
        )
    return longest


def budget_of(
    context: RunnerContext,
    platform: Platform,
    layers: Mapping[str, AttentionLayer],
    page_tokens: int,
    max_len: int,
) -> CacheBudget:
    """Bytes for the cache.  More than all slots at full length, and the null page, is of no
    use.  Layers are counted as the core groups them: by spec, as many together as the rarest
    spec has, all with slabs as large as the largest."""
    counts = Counter(layer.spec for layer in layers.values())
    places = min(counts.values())
    slab = max(spec.page_bytes(page_tokens) for spec in counts)
    pages = sum(
        -(-count // places) * spec.max_pages(max_len, page_tokens, context.max_step_tokens)
        for spec, count in counts.items()
    )
    needed = places * slab * (1 + context.max_slots * pages)
    with blaming(platform, "choosing the size of the cache"):
        budget = platform.cache_budget(needed, context.cache_bytes)
    return expect(platform, "cache_budget", budget, CacheBudget)
