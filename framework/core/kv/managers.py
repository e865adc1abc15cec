"""Which pages a group of layers may reuse: by class of its spec, along the MRO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from framework.contracts.kv_cache_spec import CacheManagerType, FullAttentionSpec, KVCacheSpec
from framework.errors import ConfigError


class FullAttentionManager(CacheManagerType):
    """Every token is read for ever: a hit is an unbroken run of pages from the start."""

    spec_class = FullAttentionSpec

    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        for count, there in enumerate(present):
            if not there:
                return count
        return len(present)


def manager_for(spec: KVCacheSpec, managers: Iterable[CacheManagerType]) -> CacheManagerType:
    """The manager of the nearest class of `spec`'s MRO.  Raises ConfigError without one."""
    by_class = {manager.spec_class: manager for manager in managers}
    for cls in type(spec).__mro__:
        if cls in by_class:
            return by_class[cls]
    known = sorted(cls.__name__ for cls in by_class)
    raise ConfigError(
        f"no cache manager serves the spec {type(spec).__name__}",
        expected=f"a plugin of kind kv_cache_spec for it; here are {known}",
        mend="install the plugin that the model's definition names, or use another model",
    )
