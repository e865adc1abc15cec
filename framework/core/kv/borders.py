"""Where a state is kept at the end of each page, steps must end there too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.core.kv.managers import manager_for

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.step import CacheGroup
    from framework.core.config import CoreConfig
    from framework.core.kv.allocation import Counts


class Borders:
    """tokens: no step goes past a multiple of so many tokens; None: steps end anywhere."""

    def __init__(self, groups: Sequence[CacheGroup], managers: Iterable[CacheManagerType]) -> None:
        managers = tuple(managers)
        carry = [g.page_tokens for g in groups if manager_for(g.spec, managers).carries_state]
        self.tokens = min(carry, default=None)

    def clip(self, planned: Counts, take: Counts) -> Counts:
        """Shorten steps of `take` tokens from `planned` on that would go past one."""
        if self.tokens is None:
            return take
        return np.minimum(take, self.tokens - planned % self.tokens)

    def before(self, tokens: int) -> int:
        """The most of the first `tokens` tokens of more that there are after which one can go on:
        of those in between no state is kept."""
        return tokens if self.tokens is None else tokens // self.tokens * self.tokens

    def in_flight(self, config: CoreConfig) -> int:
        """Most tokens of one request that are planned and not yet confirmed."""
        if self.tokens is None:
            return config.tokens_in_flight
        return min(config.max_num_batched_tokens, self.tokens) * config.loop_depth
