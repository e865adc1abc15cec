"""How much text can fit the context: known before anything is tokenized."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from framework.errors import TooLongError

if TYPE_CHECKING:
    from framework.contracts.tokenizer import Tokenizer

_USUAL = 8
"""Characters per token that nobody has to count the vocabulary for."""


class ContextLimit:
    """Refuses what cannot fit.  Implements `framework.contracts.tokenizer.TextLimit`.

    A text of c characters has at least c bytes, so at least c / longest token tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_model_len: int) -> None:
        self._tokenizer = tokenizer
        self._max_model_len = max_model_len

    @cached_property
    def characters(self) -> int:
        """No more can fit.  Reads the whole vocabulary, once: a tenth of a second."""
        return self._longest_token * self._max_model_len

    @cached_property
    def _longest_token(self) -> int:
        """Bytes of the longest token, at least 1."""
        tokenizer = self._tokenizer
        lengths = (len(tokenizer.token_bytes(i)) for i in range(tokenizer.vocab_size))
        return max(1, max(lengths, default=1))

    def check(self, text: str) -> None:
        """Raises TooLongError for a text that cannot fit."""
        size = len(text)
        if size > _USUAL * self._max_model_len and size > self.characters:
            least = size // self._longest_token
            raise self.too_long(f"{size} characters, at least {least} tokens", output=None)

    def too_long(self, found: str, *, output: bool | None = True) -> TooLongError:
        """The error for a prompt of that size.  output: whether it was to be continued; None: that
        is not known."""
        what, part = {
            True: ("prompt and one output token", "its end"),
            False: ("a prompt", "its beginning"),
            None: ("a prompt", "a part of it"),
        }[output]
        return TooLongError(
            "the prompt is too long",
            parameter="prompt",
            expected=f"{what} within max_model_len={self._max_model_len}",
            found=found,
            mend=f"shorten the prompt, or set truncate_prompt_tokens to keep only {part}",
        )
