"""What stands behind a mark: objects that are calls, one after the other."""

from __future__ import annotations

from framework.contracts.tool_parser import ToolEvent
from framework_parsers.calls import Events, Taken
from framework_parsers.objects import CallObject

SPACE = " \t\r\n"


class Objects:
    """Objects up to whatever else comes.

    lead: the mark and what followed it, which is text if no call comes.  keys: what arguments may
    be called.  between: a character that may stand between two.  close: a mark that ends them.
    """

    def __init__(
        self,
        events: Events,
        lead: str,
        keys: tuple[str, ...],
        *,
        between: str = "",
        close: str = "",
    ) -> None:
        self._events = events
        self._keys = keys
        self._close = close
        self._between = SPACE + between
        self._layout = [lead]
        self._called = False
        self._held = ""
        self._object: CallObject | None = None

    def take(self, text: str) -> Taken:
        """See Body."""
        found: list[ToolEvent] = []
        rest: str | None = text
        while rest:
            if self._object is None:
                rest = self._between_two(rest)
                if rest is None or self._object is None:
                    return [*found, *([] if rest is None else self._text(""))], rest
            events, rest = self._object.take(rest)
            found += events
            if self._object.refused is not None:
                return [*found, *self._text(self._object.refused)], rest
            if rest is not None:
                self._object, self._called, self._layout = None, True, []
        return found, None

    def finish(self) -> list[ToolEvent]:
        """See Body."""
        if self._object is not None:
            self._object.finish()
            return [] if self._object.refused is None else self._text(self._object.refused)
        return self._text(self._held) if self._held or not self._called else []

    def _between_two(self, text: str) -> str | None:
        """What stands behind space: an object, which is then read, or the end."""
        text, self._held = self._held + text, ""
        bare = text.lstrip(self._between if self._called else SPACE)
        self._layout.append(text[: len(text) - len(bare)])
        if bare.startswith("{"):
            self._object = CallObject(self._events, self._keys)
        elif not bare or (self._called and bare != self._close and self._close.startswith(bare)):
            self._held = bare
            return None
        elif self._called and self._close and bare.startswith(self._close):
            self._layout = []
            return bare[len(self._close) :]
        return bare

    def _text(self, text: str) -> list[ToolEvent]:
        """What was no call, and what stood before it."""
        layout, self._layout = self._layout, []
        return self._events.text("".join((*layout, text)))
