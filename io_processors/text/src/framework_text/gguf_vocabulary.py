"""The vocabulary that a GGUF file carries, checked, before any tokenizer is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from framework.errors import ModelError
from framework_text.gguf_head import MEND, GgufHead

# How chat models end a turn.  Files often name only the end of a document as EOS.
_END_OF_TURN = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_turn|>",
    "<|endofturn|>",
    "<｜end▁of▁sentence｜>",
)


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufVocabulary:
    """model: "gpt2" (byte-level BPE) or "llama" (SentencePiece).  pre: name of the rule that
    cuts text.  types: one per token.  scores: of SentencePiece, else empty.  ids: bos, eos,
    eot, unknown, padding where the file names them.  add_bos, add_eos, add_space_prefix: None
    if the file does not say.
    """

    path: Path
    architecture: str
    model: str
    pre: str | None
    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str] | None
    ids: Mapping[str, int]
    add_bos: bool | None
    add_eos: bool | None
    add_space_prefix: bool | None
    chat_template: str | None

    def text(self, name: str) -> str | None:
        """The token of a role in `ids`."""
        return self.tokens[self.ids[name]] if name in self.ids else None


_ID_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "eot": "eot_token_id",
    "unknown": "unknown_token_id",
    "padding": "padding_token_id",
}


def read_vocabulary(head: GgufHead) -> GgufVocabulary:
    """ModelError if the vocabulary is missing or contradicts itself."""
    tokens = head.strings("tokenizer.ggml.tokens")
    model = head.text("tokenizer.ggml.model")
    if not tokens or model is None:
        raise ModelError(
            f"{head.path} holds no vocabulary",
            expected="tokenizer.ggml.model and tokenizer.ggml.tokens",
            mend="give the folder of the model's tokenizer as `tokenizer`",
        )
    types = head.numbers("tokenizer.ggml.token_type")
    scores = head.numbers("tokenizer.ggml.scores")
    for name, values in (("token_type", types), ("scores", scores)):
        if values is not None and len(values) != len(tokens):
            raise ModelError(
                f"{head.path} is damaged: tokenizer.ggml.{name} does not match the vocabulary",
                expected=f"{len(tokens)} items",
                found=len(values),
                mend=MEND,
            )
    return GgufVocabulary(
        path=head.path,
        architecture=head.architecture,
        model=model,
        pre=head.text("tokenizer.ggml.pre"),
        tokens=tokens,
        types=[int(TokenType.NORMAL)] * len(tokens) if types is None else types.tolist(),
        scores=[] if scores is None else scores.tolist(),
        merges=head.strings("tokenizer.ggml.merges"),
        ids=token_ids(head, len(tokens)),
        add_bos=head.flag("tokenizer.ggml.add_bos_token"),
        add_eos=head.flag("tokenizer.ggml.add_eos_token"),
        add_space_prefix=head.flag("tokenizer.ggml.add_space_prefix"),
        chat_template=head.text("tokenizer.chat_template"),
    )


def token_ids(head: GgufHead, vocab_size: int) -> dict[str, int]:
    """The ids that the file names, by role; ModelError for one outside the vocabulary."""
    ids: dict[str, int] = {}
    for name, key in _ID_KEYS.items():
        value = head.integer(f"tokenizer.ggml.{key}")
        if value is None or value == 0xFFFFFFFF:  # -1 written as u32: "there is none"
            continue
        if not 0 <= value < vocab_size:
            raise ModelError(
                f"{head.path} is damaged: tokenizer.ggml.{key} is not a token",
                expected=f"0 to {vocab_size - 1}",
                found=value,
                mend=MEND,
            )
        ids[name] = value
    return ids


def end_ids(head: GgufHead) -> tuple[int, ...]:
    """Every id that ends a sequence: EOS, end of turn, and control tokens known to be one."""
    tokens = head.strings("tokenizer.ggml.tokens") or []
    types = head.numbers("tokenizer.ggml.token_type")
    ids = token_ids(head, len(tokens))
    found = [ids[name] for name in ("eos", "eot") if name in ids]
    if types is not None and len(types) == len(tokens):
        by_text = {
            token: index
            for index, token in enumerate(tokens)
            if token in _END_OF_TURN and types[index] == TokenType.CONTROL
        }
        found += [by_text[token] for token in _END_OF_TURN if token in by_text]
    return tuple(dict.fromkeys(found))
