"""A conversation that is kept inside the model's context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Render = Callable[[list[Mapping[str, Any]]], dict[str, Any]]


@dataclass(slots=True)
class Conversation:
    """system: stays for ever.  turns: messages of user and assistant in turn."""

    system: str | None = None
    turns: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """All of it, as a chat template wants it."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        return [*head, *self.turns]

    def ask(self, text: str) -> None:
        """The user says something."""
        self.turns.append({"role": "user", "content": text})

    def answer(self, text: str) -> None:
        """The model has said something."""
        self.turns.append({"role": "assistant", "content": text})

    def take_back(self) -> None:
        """Forget the question that was asked last."""
        self.turns.pop()

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.turns.clear()

    def fit(self, render: Render, limit: int) -> tuple[dict[str, Any], int]:
        """(prompt of at most `limit` tokens if that can be had, exchanges dropped for it).

        The oldest exchanges go first; the last question always stays.
        """
        dropped = 0
        while True:
            prompt = render(self.messages)
            if len(prompt["prompt_token_ids"]) <= limit or len(self.turns) < 3:
                return prompt, dropped
            del self.turns[:2]
            dropped += 1
