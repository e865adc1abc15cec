"""A tokenizer without files: ids 0 to 255 are bytes, then special ids, then words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framework.contracts.tokenizer import TextLimit
from framework.errors import InputError

EOS, PAD, TURN = 256, 257, 258
STOP_WORD = 259
FIRST_WORD = 260


class ByteTokenizer:
    """EOS, PAD and TURN are special and written <eos>, <pad>, <turn>; STOP_WORD is written
    [stop] and is not special.  words: further tokens from FIRST_WORD on, which only `encode`
    of exactly that text gives.  strips: it drops a leading space, as SentencePiece does.

    encoded: how often `encode` was called.
    """

    def __init__(self, words: Sequence[str] = (), *, strips: bool = False) -> None:
        named = ["<eos>", "<pad>", "<turn>", "[stop]", *words]
        self._bytes = [bytes([i]) for i in range(256)] + [name.encode() for name in named]
        self._words = {word: FIRST_WORD + index for index, word in enumerate(words)}
        self.vocab_size = len(self._bytes)
        self.special_ids = frozenset({EOS, PAD, TURN})
        self.eos_ids: tuple[int, ...] = (EOS,)
        self.bos_id: int | None = None
        self.strips_leading_space = strips
        self.chat_template: str | None = "<turn>role: content"
        self.encoded = 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self.encoded += 1
        return [self._words[text]] if text in self._words else list(_utf8(text))

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        hidden = self.special_ids if skip_special_tokens else frozenset[int]()
        data = b"".join(self.token_bytes(token) for token in ids if token not in hidden)
        text = data.decode("utf-8", "replace")
        return text.removeprefix(" ") if self.strips_leading_space else text

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def token_text(self, token_id: int) -> str:
        return self.token_bytes(token_id).decode("latin-1")

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
        """<turn>, role, ": ", content per message; a template is put in front of it all."""
        turns = []
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if not isinstance(role, str) or not isinstance(content, str):
                raise InputError(
                    "a message is invalid",
                    parameter="messages",
                    expected="role and content as strings",
                    found=repr(dict(message)),
                )
            turns.append(f"{role}: {content}")
        if limit is not None:
            limit.check("".join(turns))
        ids = list(_utf8(chat_template or ""))
        for turn in turns:
            ids += [TURN, *_utf8(turn)]
        return [*ids, TURN, *b"assistant: "] if add_generation_prompt else ids

    def unwrap(self) -> Any:
        return self


def _utf8(text: str) -> bytes:
    """Raises InputError for half of a surrogate pair, which is no character."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            "the text holds half of a surrogate pair, which has no bytes in UTF-8",
            parameter="prompt",
            expected="text of whole characters",
            found=f"{text[error.start : error.start + 1]!r} at index {error.start}",
            mend="leave it out, or decode the text with errors='replace'",
        ) from error
