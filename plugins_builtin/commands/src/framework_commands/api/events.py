"""Server-sent events of OpenAI's streams, line by line."""

from __future__ import annotations

import json
from typing import Any

from framework_commands.api.errors import ApiError, cut_short, of_event


class Events:
    """Reads the lines of one stream.  url: for messages.

    done: the stream said that it is over.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.done = False

    def push(self, line: str) -> dict[str, Any] | None:
        """The event that a line holds, if any; comments and empty lines hold none.

        Raises ApiError for an event that is an error, and for what is no JSON.
        """
        if not line.startswith("data:"):
            return None
        text = line[5:].strip()
        if text == "[DONE]":
            self.done = True
            return None
        try:
            event = json.loads(text)
        except ValueError:
            raise cut_short(self._url, f"an event is no JSON: {text!r:.80}") from None
        if not isinstance(event, dict):
            raise cut_short(self._url, f"an event is no object: {text!r:.80}")
        if event.get("error") is not None:
            raise of_event(event, self._url)
        return event

    def end(self) -> ApiError | None:
        """What is wrong with a stream that ended here."""
        return None if self.done else cut_short(self._url, "it ended without its last event")
