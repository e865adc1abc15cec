"""Calls as JSON objects, told as they come: a call once its name is known and its arguments begin,
the arguments piece by piece as the model writes them.

{"name": "weather", "arguments": {"city": "Paris"}}
|        held back           |   | told at once  | nothing to tell
"""

from __future__ import annotations

from framework.contracts.tool_parser import ToolEvent
from framework_parsers.calls import Events, Taken
from framework_parsers.values import Punctuation, read_call, read_string


class Arguments:
    """The object of the arguments, from its brace on, of a call that has begun."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._punctuation = Punctuation()

    def take(self, text: str) -> Taken:
        """See Body.  A mark where JSON cannot have one ends them, too."""
        for place, mark in self._punctuation.marks(text):
            end = place if mark == "<" else place + 1
            if mark == "<" or self._punctuation.depth == 0:
                return self._events.arguments(text[:end]), text[end:]
        return self._events.arguments(text), None

    def finish(self) -> list[ToolEvent]:
        """See Body."""
        return []


class CallObject:
    """One object.  keys: what its arguments may be called.

    refused: the text of an object that turned out to be no call.
    """

    def __init__(self, events: Events, keys: tuple[str, ...]) -> None:
        self._events = events
        self._keys = keys
        self._punctuation = Punctuation()
        self._held: list[str] = []
        self._word: list[str] = []  # pieces of one of the object's own strings
        self._key: str | None = None
        self._name: str | None = None
        self._value = False
        self._last = ""
        self._arguments: Arguments | None = None
        self._told = False
        self.refused: str | None = None

    def take(self, text: str) -> Taken:
        """See Body."""
        if self._arguments is not None:
            events, rest = self._arguments.take(text)
            if rest is None:
                return events, None
            self._arguments = None
            self._punctuation.depth -= 1
            more, rest = self._tail(rest)
            return [*events, *more], rest
        return self._tail(text) if self._told else self._head(text)

    def finish(self) -> list[ToolEvent]:
        """See Body; then `refused` is what was held back of no whole call."""
        if not self._told:
            self.refused = "".join(self._held)
        return []

    def _head(self, text: str) -> Taken:
        """Up to the arguments of a known tool, or to the end of the object."""
        quote = 0  # where the string that is being read begins in this piece
        for place, mark in self._punctuation.marks(text):
            if mark == "<":
                return self._refuse(text, place)
            if self._punctuation.depth == 0:
                return self._whole(text, place + 1)
            if self._argues(mark):
                return self._begin(text, place)
            if self._punctuation.depth == 1:
                if mark == '"' and self._punctuation.string:
                    quote = place
                elif mark == '"':
                    self._string("".join((*self._word, text[quote : place + 1])))
                    self._word = []
                else:
                    self._value = mark == ":"
            self._last = mark
        if self._punctuation.string and self._punctuation.depth == 1:
            self._word.append(text[quote:])
        self._held.append(text)
        return [], None

    def _argues(self, mark: str) -> bool:
        """Whether the arguments of a known tool begin."""
        own = mark == "{" and self._punctuation.depth == 2 and self._last == ":"
        return own and self._key in self._keys and self._name in self._events.names

    def _string(self, text: str) -> None:
        """A string among the object's own members: a key or a value."""
        word = read_string(text)
        if not self._value:
            self._key = word
        elif self._key == "name":
            self._name = word

    def _begin(self, text: str, place: int) -> Taken:
        assert self._name is not None
        self._held, self._told = [], True
        begun = self._events.begin(self._name)
        self._arguments = Arguments(self._events)
        events, rest = self.take(text[place:])
        return [*begun, *events], rest

    def _tail(self, text: str) -> Taken:
        """From the arguments to the end of the object."""
        for place, mark in self._punctuation.marks(text):
            if mark == "<":
                return [], text[place:]
            if self._punctuation.depth == 0:
                return [], text[place + 1 :]
        return [], None

    def _whole(self, text: str, end: int) -> Taken:
        """The object has ended before the call was known, as where the name comes last."""
        whole = "".join((*self._held, text[:end]))
        call = read_call(whole, self._events.names, self._keys)
        if call is None:
            return self._refuse(text, end)
        self._told = True
        told = [*self._events.begin(call.name), *self._events.arguments(call.arguments)]
        return told, text[end:]

    def _refuse(self, text: str, end: int) -> Taken:
        self.refused = "".join((*self._held, text[:end]))
        return [], text[end:]
