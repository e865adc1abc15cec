"""Values in messages."""

from __future__ import annotations

import reprlib

MOST = 300


def shown(value: object) -> str:
    """`repr`, cut where it grows long or deep: a caller may give a value of any size, and one
    nested so deep that `repr` itself fails."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother, short.maxlong = 3, MOST, MOST, 60
    short.maxlist = short.maxtuple = short.maxset = short.maxfrozenset = short.maxdict = 12
    text = short.repr(value)
    return text if len(text) <= MOST else f"{text[:MOST]}..."


def is_whole(text: str) -> bool:
    """Whether UTF-8 can carry a text: it holds no half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
