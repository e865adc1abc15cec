"""A conversation that is kept inside the model's context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.errors import TooLongError

Render = Callable[[list[Mapping[str, Any]]], dict[str, Any]]


@dataclass(slots=True)
class Conversation:
    """system: stays for ever.  turns: messages of user and assistant in turn."""

    system: str | None = None
    turns: list[Mapping[str, Any]] = field(default_factory=list)
    _before: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """All of it, as a chat template wants it."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        return [*head, *self.turns]

    def ask(self, text: str) -> None:
        """The user says something."""
        self._before = [*self.turns]
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        """The model has said something."""
        self.turns.append({"role": "assistant", "content": text})

    def take_back(self) -> None:
        """Be again what it was before the last question, with whatever was dropped for it."""
        self.turns = self._before

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.turns.clear()

    def fit(self, render: Render, limit: int) -> tuple[dict[str, Any], int]:
        """(prompt of at most `limit` tokens if that can be had, exchanges dropped for it).

        The oldest exchanges go first; the last question always stays.  Raises TooLongError
        where that alone cannot fit.
        """
        dropped = 0
        while True:
            last = len(self.turns) < 3
            try:
                prompt = render(self.messages)
            except TooLongError:
                if last:
                    raise
            else:
                if last or len(prompt["prompt_token_ids"]) <= limit:
                    return prompt, dropped
            self.forget()
            dropped += 1

    def forget(self) -> bool:
        """Drop the oldest exchange; False where only the last question is left."""
        if len(self.turns) < 3:
            return False
        del self.turns[:2]
        return True
