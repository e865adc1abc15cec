"""Near matches of a mistyped name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` of `known` that look like `name`, best first; case is ignored."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    hits = difflib.get_close_matches(name.lower(), list(by_lower), n=limit, cutoff=0.6)
    return [by_lower[hit] for hit in hits]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'a' or 'b'?)`, or an empty string."""
    hits = near(name, known)
    return f" (did you mean {' or '.join(repr(hit) for hit in hits)}?)" if hits else ""
