"""From what a runner tells of its layers to the plan of the cache."""

from __future__ import annotations

from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.contracts.step import CacheGroup, CachePlan, RunnerInfo
from framework.core.config import CoreConfig
from framework.errors import ConfigError


def choose_page_tokens(info: RunnerInfo, config: CoreConfig) -> int:
    """The page size in tokens: the operator's, else the best that the backends agree on."""
    if config.page_tokens is None:
        return info.page_tokens[0]
    if config.page_tokens not in info.page_tokens:
        raise ConfigError(
            "the attention backend cannot serve this page size",
            expected=f"one of {list(info.page_tokens)} tokens",
            found=config.page_tokens,
            mend="choose one of these as page_size, or leave it out",
        )
    return config.page_tokens


def group_layers(info: RunnerInfo, page_tokens: int) -> tuple[CacheGroup, ...]:
    """Layers with equal specs share page tables."""
    by_spec: dict[KVCacheSpec, list[str]] = {}
    for layer, spec in info.layers.items():
        by_spec.setdefault(spec, []).append(layer)
    return tuple(
        CacheGroup(spec=spec, layers=tuple(layers), page_tokens=page_tokens)
        for spec, layers in by_spec.items()
    )


def plan_cache(info: RunnerInfo, config: CoreConfig) -> tuple[CachePlan, int]:
    """(plan, longest sequence that can be served).

    A page id has room in every group, so a page costs the bytes of all groups together.
    More pages than all slots can fill are of no use and are not planned.
    """
    page_tokens = choose_page_tokens(info, config)
    groups = group_layers(info, page_tokens)
    page_bytes = sum(len(g.layers) * g.spec.page_bytes(page_tokens) for g in groups)
    num_pages = config.num_pages or info.bytes_free // max(page_bytes, 1)
    length = _longest(info, config, page_tokens, num_pages, len(groups))
    per_request = max(g.spec.max_pages(length, page_tokens) for g in groups)
    if config.num_pages is None:
        num_pages = min(num_pages, 1 + per_request * len(groups) * config.max_num_seqs)
    plan = CachePlan(
        groups=groups,
        num_pages=num_pages,
        page_bytes=page_bytes,
        max_pages_per_request=per_request,
    )
    return plan, length


def _longest(
    info: RunnerInfo, config: CoreConfig, page_tokens: int, num_pages: int, num_groups: int
) -> int:
    """Cap the sequence length by the model, the operator and the cache."""
    capacity = (num_pages - 1) // num_groups * page_tokens
    if capacity < 1:
        raise ConfigError(
            "the cache has no room for a single page",
            expected=f"room for {1 + num_groups} pages of {page_tokens} tokens",
            found=f"room for {num_pages}",
            mend="give the cache more memory, or choose a smaller page size",
        )
    asked, model = config.max_model_len, info.max_model_len
    if asked is not None:
        if model is not None and asked > model:
            raise ConfigError(
                "max_model_len exceeds the model",
                expected=f"at most {model} (the model's own limit)",
                found=asked,
                mend="lower max_model_len",
            )
        if asked > capacity:
            raise ConfigError(
                "max_model_len exceeds the cache",
                expected=f"at most {capacity} tokens fit the cache of {num_pages} pages",
                found=asked,
                mend="lower max_model_len, or give the cache more memory",
            )
        return asked
    return capacity if model is None else min(model, capacity)
