"""Kind `tokenizer`: text to token ids and back, and the chat template."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from framework.contracts.base import Answer, Contract
from framework.contracts.model_source import ModelFiles


class TextLimit(Protocol):
    """How much text can fit the model's context."""

    @property
    def characters(self) -> int:
        """No more can fit."""
        ...

    def check(self, text: str) -> None:
        """Raises InputError for a text that cannot fit; cheap beside tokenizing it."""
        ...


class Tokenizer(Protocol):
    """What the engine asks of a tokenizer.  Not shared between threads.

    vocab_size: ids are in [0, vocab_size).  special_ids: hidden by skip_special_tokens.
    eos_ids: ids that end a sequence by themselves.  strips_leading_space: decoders of the
    SentencePiece family drop one space at the start of a text.
    """

    vocab_size: int
    special_ids: frozenset[int]
    eos_ids: tuple[int, ...]
    bos_id: int | None
    strips_leading_space: bool
    chat_template: str | None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str: ...

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes this id stands for; b"" for an id without text or out of range.

        For valid UTF-8, decode(ids) is the concatenation of these, less one leading space
        if `strips_leading_space`.
        """
        ...

    def token_text(self, token_id: int) -> str:
        """How the id is written in the vocabulary ("Ġthe")."""
        ...

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        limit: TextLimit | None = None,
    ) -> list[int]:
        """Token ids of a conversation.  Raises InputError for a conversation that the template
        refuses, a template that fails, or a model without one.

        messages, tools: as the IO processor `chat` hands them over, in one shape whatever a
        client wrote: content is text, arguments of calls are objects.  add_generation_prompt and
        continue_final_message are never both true.
        limit: what to call with the text before it is tokenized; None: any length is wanted.
        """
        ...

    def unwrap(self) -> Any:
        """The library's own tokenizer object, for users who want it."""
        ...


class TokenizerLoader(Contract):
    """Makes tokenizers for one way of storing them."""

    kind: ClassVar[str] = "tokenizer"

    @abstractmethod
    def answer(self, query: Any) -> Answer:
        """`query`: WeightQuery on the tokenizer's folder and files; load_format is "auto"."""

    @abstractmethod
    def load(self, model: ModelFiles) -> Tokenizer:
        """A new tokenizer.  Raises ModelError if files are missing or damaged."""
