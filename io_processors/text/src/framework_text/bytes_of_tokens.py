"""Which bytes a token stands for, read off the decoder of a `tokenizers.Tokenizer`.

Two families cover the decoders of language models:

- byte level (GPT-2): every byte has a printable character; a token is a string of them.
- SentencePiece: "▁" is a space, <0x0A> is a byte, and one space at the start of a text is
  dropped by the decoder if the encoder had put it there.

A decoder whose tokens have no bytes of their own (its output for a token depends on the
neighbours) is refused: a stream could not be cut exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framework.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")
TextStep = Callable[[str], "str | bytes"]


def byte_alphabet() -> Mapping[str, int]:
    """GPT-2's character of each byte, the other way round.

    Printable bytes of Latin-1 stand for themselves; the other 68 are the characters from 256
    upwards, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + rank): byte for rank, byte in enumerate(others)
    }


@dataclass(frozen=True, slots=True)
class TokenDecoder:
    """to_bytes: of an ordinary token.  added_to_bytes: of an added one (a piece of text)."""

    to_bytes: Callable[[str], bytes]
    added_to_bytes: Callable[[str], bytes]
    strips_leading_space: bool


def byte_level_decoder() -> TokenDecoder:
    """A token is spelled in the byte alphabet; one that is not is plain text."""
    alphabet = byte_alphabet()

    def to_bytes(token: str) -> bytes:
        try:
            return bytes([alphabet[character] for character in token])
        except KeyError:
            return token.encode("utf-8")

    return TokenDecoder(to_bytes, str.encode, False)


def token_decoder(spec: Mapping[str, Any] | None) -> TokenDecoder:
    """`spec`: the "decoder" of tokenizer.json.  ModelError for one without bytes by token."""
    steps = _flatten(spec)
    if [step["type"] for step in steps] == ["ByteLevel"]:
        return byte_level_decoder()
    if not steps:
        # Without a decoder the library joins tokens with spaces.
        joined: Callable[[str], bytes] = lambda token: b" " + token.encode("utf-8")  # noqa: E731
        return TokenDecoder(joined, joined, True)
    chain: list[TextStep] = []
    strips = fused = False
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": old}, "content": new} if not fused:
                chain.append(_replace(old, new))
            case {"type": "ByteFallback"}:
                chain.append(_byte_fallback)
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": " ", "start": 1, "stop": 0} if fused:
                strips = True
            case {"type": "Metaspace", "replacement": mark}:
                chain.append(_replace(mark, " "))
                strips = step.get("prepend_scheme", "always") != "never"
            case {"type": "WordPiece", "prefix": prefix}:
                chain.append(_word_piece(prefix))
                strips = True
            case _:
                raise ModelError(
                    f"the tokenizer's decoder {step['type']} gives no bytes by token",
                    expected="ByteLevel, Metaspace, WordPiece or Replace + ByteFallback",
                    found=", ".join(str(item["type"]) for item in steps),
                    mend="use a model whose tokenizer.json has one of these decoders",
                )
    to_bytes = _compose(chain)
    return TokenDecoder(to_bytes, to_bytes, strips)


def _flatten(spec: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if spec is None:
        return []
    if spec.get("type") == "Sequence":
        return [step for part in spec.get("decoders", ()) for step in _flatten(part)]
    return [spec]


def _replace(old: str, new: str) -> TextStep:
    return lambda token: token.replace(old, new)


def _byte_fallback(token: str) -> str | bytes:
    match = _BYTE_TOKEN.match(token)
    return bytes([int(match[1], 16)]) if match else token


def _word_piece(prefix: str) -> TextStep:
    return lambda token: token[len(prefix) :] if token.startswith(prefix) else " " + token


def _compose(chain: Sequence[TextStep]) -> Callable[[str], bytes]:
    def to_bytes(token: str) -> bytes:
        value: str | bytes = token
        for step in chain:
            if isinstance(value, bytes):
                break
            value = step(value)
        return value if isinstance(value, bytes) else value.encode("utf-8")

    return to_bytes
