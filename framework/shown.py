"""Values in messages."""

from __future__ import annotations

import re
import reprlib
from collections import deque

from framework.halt import of_plugin

MOST = 300
_IN_ONE_LINE = re.compile(r"\s*\n\s*")
_IN_PARTS = (tuple, list, dict, set, frozenset, deque, str, int, bytes, bytearray)


def shown(value: object, most: int = MOST) -> str:
    """`repr` in one line of at most `most` characters and "...", whatever the value is.

    A caller may give a value of any size, nested so deep that `repr` fails, or whose own `repr`
    fails or holds what a terminal takes for orders.
    """
    try:
        text = _Short(most).repr(value)
        return printable(_IN_ONE_LINE.sub(" ", text[:most])) + ("..." if len(text) > most else "")
    except BaseException as error:
        return _unknown(value, of_plugin(error))


def printable(text: str) -> str:
    """The text without what a terminal takes for orders, or UTF-8 cannot carry; lines stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def in_a_line(text: str, most: int = 2000) -> str:
    """What others wrote, as a part of a line: printable, and of at most `most` characters and
    "..."."""
    short = printable(" ".join(text[:most].split()))
    return short + ("..." if len(text) > most else "")


def is_whole(text: str) -> bool:
    """Whether UTF-8 can carry a text: it holds no half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


class _Short(reprlib.Repr):
    """Cuts before it makes text of a value, where that can be of any length."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother, self.maxlong = 3, most, most + 1, 60
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 12

    def repr1(self, x: object, level: int) -> str:
        # The class itself and not its name, by which the base chooses: a caller's class may be
        # called "list".
        if any(type(x) is known for known in _IN_PARTS):
            return super().repr1(x, level)
        return self.repr_instance(x, level)

    def repr_instance(self, x: object, level: int) -> str:
        try:
            text = repr(x)
        except BaseException as error:
            return _unknown(x, of_plugin(error))
        return text[: self.maxother]

    def repr_int(self, x: int, level: int) -> str:
        # Python makes no text of more than some thousand digits.
        return f"an integer of {x.bit_length()} bits" if x.bit_length() > 1000 else repr(x)

    def repr_bytes(self, x: bytes, level: int) -> str:
        return repr(x[: self.maxother])[: self.maxother]

    repr_bytearray = repr_bytes


def _unknown(value: object, error: BaseException) -> str:
    return f"a {type(value).__name__} whose repr fails ({type(error).__name__})"
