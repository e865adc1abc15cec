"""From what a runner tells of its layers to the plan of the cache.

All pages have the same bytes, so that one pool serves every group.  Layers of one spec are
cut into groups of (at most) as many layers as the rarest spec has, and every layer gets a
slab of the same bytes; a layer that needs less per token gets more tokens per page.

    spec A (15 layers, small window)   groups of 3 layers: A0 A1 A2 A3 A4
    spec B ( 3 layers, full)           one group of 3:     B0
    page:  | slab | slab | slab |      owned by any one of A0 .. B0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framework.contracts.kv_cache_spec import CacheManagerType, KVCacheSpec
from framework.contracts.step import CacheGroup, CachePlan, RunnerInfo
from framework.core.config import CoreConfig
from framework.core.kv.borders import Borders
from framework.core.kv.checked import max_pages, page_bytes
from framework.core.kv.managers import manager_for
from framework.core.kv.pages import LEAST_PAGES
from framework.errors import ConfigError
from framework.plugins.blame import blaming, unfit

LONGEST_PAGE = 2**24


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


@dataclass(frozen=True, slots=True)
class _Division:
    """How layers are cut: groups, bytes of a slab, slabs of a page."""

    groups: tuple[CacheGroup, ...]
    slab_bytes: int
    places: int


def divide(
    layers: Mapping[str, KVCacheSpec], page_tokens: int, managers: Sequence[CacheManagerType]
) -> _Division:
    """Cut layers into groups.  Specs that store nothing form groups without pages."""
    by_spec: dict[KVCacheSpec, list[str]] = {}
    for layer, spec in layers.items():
        with blaming(spec, f"being compared with the specs of layers before {layer!r}"):
            by_spec.setdefault(spec, []).append(layer)
    stored = {spec: names for spec, names in by_spec.items() if page_bytes(spec, page_tokens)}
    places = min((len(names) for names in stored.values()), default=0)
    slab = max((page_bytes(spec, page_tokens) for spec in stored), default=0)
    groups = []
    for spec, names in by_spec.items():
        size = places if spec in stored else len(names)
        tokens = _fill(spec, page_tokens, slab, manager_for(spec, managers))
        groups += [
            CacheGroup(spec=spec, layers=tuple(names[at : at + size]), page_tokens=tokens)
            for at in range(0, len(names), size)
        ]
    return _Division(tuple(groups), slab, places)


def _fill(spec: KVCacheSpec, base: int, slab: int, manager: CacheManagerType) -> int:
    """Tokens per page: doubled as long as the slab has room for them.

    A state has no tokens to double; its pages are as long as the longest of the others, so
    that prefixes of all groups end together (see `_align_states`).
    """
    tokens = base
    if manager.carries_state or not page_bytes(spec, base):
        return tokens
    while page_bytes(spec, tokens * 2) <= slab:
        tokens *= 2
        if tokens > LONGEST_PAGE:
            raise unfit(
                spec,
                "has pages that do not grow with their tokens",
                "page_bytes that grows, or a cache manager with carries_state",
                f"{page_bytes(spec, tokens)} bytes for {tokens} tokens",
            )
    return tokens


def _align_states(
    groups: Sequence[CacheGroup], managers: Sequence[CacheManagerType], whole: int | None
) -> tuple[CacheGroup, ...]:
    """Give state groups pages of the longest other page; of `whole` tokens (one page for
    everything) when no prefix is ever looked up."""
    carries = [manager_for(group.spec, managers).carries_state for group in groups]
    longest = max(group.page_tokens for group in groups)
    return tuple(
        CacheGroup(spec=g.spec, layers=g.layers, page_tokens=whole or longest) if carry else g
        for g, carry in zip(groups, carries, strict=True)
    )


def plan_cache(
    info: RunnerInfo, config: CoreConfig, managers: Sequence[CacheManagerType]
) -> tuple[CachePlan, int]:
    """(plan, longest sequence that can be served).

    More pages than all slots can fill are of no use and are not planned.
    """
    division = divide(info.layers, choose_page_tokens(info, config), managers)
    whole = None
    if not config.enable_prefix_caching:
        whole = config.max_model_len or info.max_model_len
    groups = _align_states(division.groups, managers, whole)
    bytes_of_page = division.slab_bytes * division.places
    # Layers that store nothing need no bytes: pages without any are always to be had.
    free = info.bytes_free // bytes_of_page if bytes_of_page else LEAST_PAGES
    num_pages = config.num_pages or free
    needs = Needs(groups, Borders(groups, managers).in_flight(config))
    length = _longest(info, config, needs, num_pages)
    _check_claims(needs, managers, length)
    if config.num_pages is None:
        useful = max(1 + needs.pages(length) * config.max_num_seqs, LEAST_PAGES)
        num_pages = min(num_pages, useful)
    plan = CachePlan(
        groups=groups,
        num_pages=num_pages,
        page_bytes=bytes_of_page,
        slab_bytes=division.slab_bytes,
        max_pages_per_request=max(needs.width(length), 1),
        layout=info.layout,
    )
    check_splits(plan, info.kernel_page_tokens)
    return plan, length


@dataclass(frozen=True, slots=True)
class Needs:
    """Pages that one request can need, over all groups, with at most `step_tokens` tokens of it
    planned and not yet confirmed."""

    groups: Sequence[CacheGroup]
    step_tokens: int

    def pages(self, length: int) -> int:
        """Pages held at one time, at most."""
        return sum(self.of(group, length) for group in self.groups)

    def of(self, group: CacheGroup, length: int) -> int:
        """The same of one group."""
        return max_pages(group.spec, length, group.page_tokens, self.step_tokens)

    def width(self, length: int) -> int:
        """Entries of the widest page table; dropped pages keep theirs."""
        return max(
            max(-(-length // group.page_tokens), self.of(group, length)) for group in self.groups
        )

    def longest(self, pages: int, most: int) -> int:
        """Largest length up to `most` that `pages` pages can hold, by bisection."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.pages(middle) <= pages:
                low = middle
            else:
                high = middle - 1
        return low


def _check_claims(needs: Needs, managers: Sequence[CacheManagerType], length: int) -> None:
    """Raises PluginError where a spec counts fewer pages than its manager keeps: its requests
    would be admitted and could never end."""
    for group in needs.groups:
        manager = manager_for(group.spec, managers)
        kept = -(-length // group.page_tokens)
        if manager.by_encoder or not manager.keeps_all or needs.of(group, length) >= kept:
            continue
        raise unfit(
            group.spec,
            "counts fewer pages than are kept",
            f"max_pages of at least {kept} for {length} tokens, as its manager gives none back",
            needs.of(group, length),
        )


def _longest(info: RunnerInfo, config: CoreConfig, needs: Needs, num_pages: int) -> int:
    """Cap the sequence length by the model, the operator and the cache."""
    widest = max(group.page_tokens for group in needs.groups)
    most = info.max_model_len or config.max_model_len or max(num_pages, 1) * widest
    capacity = needs.longest(num_pages - 1, most)
    asked, model = config.max_model_len, info.max_model_len
    if asked is not None and model is not None and asked > model:
        raise ConfigError(
            "max_model_len exceeds the model",
            expected=f"at most {model} (the model's own limit)",
            found=asked,
            mend="lower max_model_len",
        )
    if capacity < 1:
        raise ConfigError(
            "the cache has no room for a single page of each group",
            expected=f"room for {1 + needs.pages(1)} pages of {widest} tokens",
            found=f"room for {num_pages}",
            mend="raise kv_cache_memory_bytes (num_pages if that is set), or lower page_size",
        )
    if asked is not None and asked > capacity:
        raise ConfigError(
            "max_model_len exceeds the cache",
            expected=f"at most {capacity} tokens fit the cache of {num_pages} pages",
            found=asked,
            mend="lower max_model_len, or raise kv_cache_memory_bytes (num_pages if that is set)",
        )
    return asked if asked is not None else capacity


def check_splits(plan: CachePlan, kernels: Mapping[KVCacheSpec, int]) -> None:
    """A kernel with smaller pages can see a page as several of its own only if pages lie
    without a gap: no padding behind the layer, and pages next to each other.

    Raises ConfigError with the mend.
    """
    for group in plan.groups:
        kernel = kernels.get(group.spec)
        if kernel is None or kernel == group.page_tokens:
            continue
        used = page_bytes(group.spec, group.page_tokens)
        stride = plan.placement(0)[1]
        if group.page_tokens % kernel or stride != used:
            raise ConfigError(
                f"the kernel of {group.layers[0]!r} splits pages of {group.page_tokens} tokens "
                f"into pages of {kernel}, which do not follow each other without a gap",
                expected=f"a page size divisible by {kernel}, and a stride of {used} bytes",
                found=f"a stride of {stride} bytes ({stride - used} of them padding or others')",
                mend="use the layer_outermost layout and a page size at which the layers of all "
                "groups fill their slabs, or a backend that takes pages of this size",
            )
