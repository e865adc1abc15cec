"""What requests may still claim of the pool, so that whole sequences fit and nobody is preempted.

A page that two requests read is of no use to the one that gives it back, as long as the other
has it.  So in groups that give pages back only those count that a request has to itself:

    claim = most pages at one time - pages of its own, and of those groups that keep all
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from framework.core.kv.pages import NULL_PAGE

if TYPE_CHECKING:
    from framework.core.kv.manager import KVManager
    from framework.core.kv.prefix import Match


def claim_of(kv: KVManager, slot: int, limit: int) -> int:
    """Of a request in `slot`, of at most `limit` tokens."""
    own = 0
    for group, manager in enumerate(kv.managers):
        held = int(kv.held[group, slot])
        if manager.keeps_all:  # all count: no look at each, as all that run are asked about
            own += held
        else:
            own += _own(kv, kv.tables[group, slot, :held].tolist(), False, most=1)
    return max(kv.most_pages(limit) - own, 0)


def claim_of_newcomer(kv: KVManager, match: Match, tokens: int, encoder: int, limit: int) -> int:
    """Of one that is admitted with `match` and pages for `tokens` tokens, beyond those."""
    own = kv.whole_pages(tokens, encoder)
    for pages, manager in zip(match.pages, kv.managers, strict=True):
        own -= len(pages) - _own(kv, pages, manager.keeps_all, most=0)
    return max(kv.most_pages(limit) - own, 0)


def newly_shared(kv: KVManager, match: Match) -> int:
    """Pages that are somebody's own until `match` is taken: so many more he may claim then."""
    groups = zip(match.pages, kv.managers, strict=True)
    return sum(
        _own(kv, pages, False, most=1) - _own(kv, pages, False, most=0)
        for pages, manager in groups
        if not manager.keeps_all
    )


def _own(kv: KVManager, pages: Sequence[int], keeps_all: bool, most: int) -> int:
    """Pages of them that count: where they may be given back, those with `most` references at
    most: 1 where the request has them already, 0 before."""
    references = kv.pool.references
    return sum(page != NULL_PAGE and (keeps_all or references[page] <= most) for page in pages)
