"""What `echo` gives back of a prompt: the text that the model was shown, and its tokens in it."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framework.contracts.service import Service
    from framework.contracts.tokenizer import Tokenizer
    from framework.engine.outputs import LogprobsAt, RequestOutput


@dataclass(frozen=True, slots=True)
class Unscored:
    """A token of a prompt that nothing stands before: it has no probability."""

    decoded_token: str
    bytes: bytes


@dataclass(frozen=True, slots=True)
class Echo:
    """text: of the prompt.  entries: what is known of each token, if that was asked for; places:
    where in the text each of them is.  hidden: ids that are in no text of an output."""

    text: str = ""
    entries: Sequence[LogprobsAt | Unscored] = ()
    places: Sequence[int] = ()
    hidden: frozenset[int] = field(default_factory=frozenset)


class Cursor:
    """Counts the characters that bytes make, which come in pieces."""

    def __init__(self, start: int = 0) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.characters = start

    def place(self, data: bytes) -> int:
        """Where the character begins that these next bytes are, or are a part of."""
        if not data:
            return self.characters
        self.characters += len(self._decoder.decode(data[:1]))
        found = self.characters if self._decoder.getstate()[0] else self.characters - 1
        self.characters += len(self._decoder.decode(data[1:]))
        return found


async def echo_of(
    service: Service, output: RequestOutput, *, shown: bool, scored: bool, cut: bool
) -> Echo:
    """output: the first of a request.  shown: special tokens are text.  scored: its tokens are
    wanted, too.  cut: the text may be longer than the prompt of the model was."""
    ids, entries = output.prompt_token_ids, (output.prompt_logprobs or []) if scored else []

    def read(tokenizer: Tokenizer) -> Echo:
        text = output.prompt
        if text is None or cut:
            text = _text(tokenizer, ids, text or "", shown)
        told = [
            _unscored(tokenizer.token_bytes(token)) if entry is None else entry
            for token, entry in zip(ids, entries, strict=bool(entries))
        ]
        places = _places(tokenizer, ids, text) if told else ()
        hidden = frozenset[int]() if shown or not scored else tokenizer.special_ids
        return Echo(text, told, places, hidden)

    return await service.with_tokenizer(read)


async def nothing(service: Service, *, shown: bool) -> Echo:
    """Where no prompt is given back, but the tokens of outputs have places in their text."""
    hidden = frozenset[int]() if shown else await service.with_tokenizer(_special)
    return Echo(hidden=hidden)


def _special(tokenizer: Tokenizer) -> frozenset[int]:
    return tokenizer.special_ids


def _text(tokenizer: Tokenizer, ids: Sequence[int], whole: str, shown: bool) -> str:
    """Of ids, which are the end of `whole`, if it is known; it may name special tokens."""
    named = tokenizer.decode(ids, skip_special_tokens=False)
    if shown or (whole and whole.endswith(named)):
        return named
    return tokenizer.decode(ids, skip_special_tokens=True)


def _places(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> list[int]:
    """Where each token is in the text, in which there are no special tokens but those that it
    names, and not always the space with which some tokenizers begin one."""
    cursor, found = Cursor(), []
    for token in ids:
        data = tokenizer.token_bytes(token)
        if token in tokenizer.special_ids:
            name = data.decode("utf-8", "replace")
            data = data if text.startswith(name, cursor.characters) else b""
        elif data[:1] == b" " and not text.startswith(" ", cursor.characters):
            data = data[1:]
        found.append(cursor.place(data))
    return found


def _unscored(data: bytes) -> Unscored:
    return Unscored(data.decode("utf-8", "replace"), data)
