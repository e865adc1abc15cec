"""Pages for what an encoder leaves for a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from framework.core.kv.checked import max_pages
from framework.errors import InputError
from framework.plugins.blame import unfit

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.step import CacheGroup
    from framework.core.kv.groups import Needs


class EncoderPages:
    """Each number of an encoder's states is asked about once, when a request comes with it: a
    spec can neither fail nor change its answer while pages are taken."""

    def __init__(
        self, groups: Sequence[CacheGroup], managers: Sequence[CacheManagerType], needs: Needs
    ) -> None:
        self._groups = [
            (index, group)
            for index, (group, manager) in enumerate(zip(groups, managers, strict=True))
            if manager.by_encoder
        ]
        self._needs = needs
        self._pages: dict[tuple[int, int], int] = {}

    def check(self, states: int, longest: int) -> None:
        """Raises InputError for more states than the pages of the longest request hold, and
        PluginError if a spec fails."""
        for index, group in self._groups if states else ():
            planned = self._needs.of(group, longest)
            if planned and states > planned * group.page_tokens:  # without any nothing is kept
                raise InputError(
                    "the cache has no room for what the encoder leaves",
                    parameter="encoder_tokens",
                    expected=f"at most {planned * group.page_tokens} states",
                    found=states,
                )
            if planned and (index, states) not in self._pages:
                pages = max_pages(group.spec, states, group.page_tokens, states)
                if pages > planned:
                    raise unfit(
                        group.spec,
                        "counts more pages for less",
                        f"at most {planned} pages for {states} states of an encoder",
                        pages,
                    )
                self._pages[index, states] = pages

    def of(self, group: int, states: int) -> int:
        """Pages of a group for so many states, which were checked."""
        return self._pages.get((group, states), 0)
