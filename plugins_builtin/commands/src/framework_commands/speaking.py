"""Who answers in a conversation: a model of this process, or a server."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from framework.errors import FrameworkError
from framework_commands.api.errors import ApiError

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.engine.llm import LLM
    from framework.engine.prompts import Prompt
    from framework_commands.api.talk import Talk
    from framework_commands.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Piece:
    """What is new of an answer.  tokens: how many it is.  ending: why it ended, in its last."""

    text: str
    tokens: int
    ending: str | None = None


Pieces = Generator[Piece, None, None]


class Speaker(Protocol):
    """Both methods raise errors of `framework.errors`; closing the pieces ends the request."""

    def answer(self, conversation: Conversation) -> tuple[Pieces, int]:
        """(the answer, how many of the oldest exchanges were forgotten for it)."""
        ...

    def complete(self, text: str) -> Pieces:
        """How the text goes on."""
        ...


class Model:
    """A model of this process."""

    def __init__(self, llm: LLM, params: SamplingParams) -> None:
        self._llm = llm
        self._params = params

    def answer(self, conversation: Conversation) -> tuple[Pieces, int]:
        """See Speaker.  What does not fit beside the answer is forgotten."""
        limit = self._llm.max_model_len - self._reserve()
        prompt, dropped = conversation.fit(self._llm.render_chat, limit)
        return self._stream(cast("Prompt", prompt)), dropped

    def complete(self, text: str) -> Pieces:
        """See Speaker."""
        return self._stream(text)

    def _stream(self, prompt: Prompt) -> Pieces:
        stream = self._llm.stream(prompt, self._params)
        try:
            for output in stream:
                [one] = output.outputs
                if one.finish_reason == "error":
                    raise FrameworkError(f"the answer failed: {one.stop_reason}")
                yield Piece(one.text, len(one.token_ids), one.finish_reason)
        finally:
            stream.close()

    def _reserve(self) -> int:
        """Tokens kept free for the answer: what was asked for, at most half the context."""
        length = self._llm.max_model_len
        return min(self._params.max_tokens or length // 4, length // 2)


class Remote:
    """A model behind a URL.  fields: of every request, the model among them."""

    def __init__(self, talk: Talk, fields: Mapping[str, Any]) -> None:
        self._talk = talk
        self._fields = fields

    def answer(self, conversation: Conversation) -> tuple[Pieces, int]:
        """See Speaker.  What the server finds too long is forgotten."""
        dropped = 0
        while True:
            body = {**self._fields, "messages": conversation.messages, "stream": True}
            pieces = self._pieces("/v1/chat/completions", body)
            try:
                first = next(pieces, None)
            except ApiError as error:
                if not error.too_long or not conversation.forget():
                    raise
                dropped += 1
                continue
            return _behind(first, pieces), dropped

    def complete(self, text: str) -> Pieces:
        """See Speaker."""
        return self._pieces("/v1/completions", {**self._fields, "prompt": text, "stream": True})

    def _pieces(self, path: str, body: Mapping[str, Any]) -> Pieces:
        stream = self._talk.stream(path, body)
        try:
            for event in stream:
                for choice in event.get("choices") or ():
                    text = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
                    yield Piece(text, 1 if text else 0, choice.get("finish_reason"))
        finally:
            stream.close()


def _behind(first: Piece | None, rest: Pieces) -> Pieces:
    try:
        if first is not None:
            yield first
        yield from rest
    finally:
        rest.close()
