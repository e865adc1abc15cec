"""A `tokenizers.Tokenizer` from the vocabulary of a GGUF file.

gpt2: byte-level BPE (Radford et al. 2019); merges are in the file.
llama: SentencePiece BPE with byte fallback (Kudo and Richardson 2018); merges follow from the
vocabulary: two neighbours may merge if the result is a token, the best-scored result first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from framework.errors import ModelError
from framework_text.bytes_of_tokens import TokenDecoder, byte_level_decoder, token_decoder
from framework_text.gguf_head import MEND
from framework_text.gguf_pretokenizers import build, find_pre_tokenizer
from framework_text.gguf_vocabulary import GgufVocabulary, TokenType

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_MARK = "▁"
_SPACE_DECODERS = [
    {"type": "Replace", "pattern": {"String": _MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def build_backend(vocabulary: GgufVocabulary) -> tuple[Tokenizer, TokenDecoder]:
    """The tokenizer with its special tokens, and the bytes of its tokens.

    ModelError for a kind of vocabulary or a pre-tokenizer that is not known.
    """
    builders: Mapping[str, Callable[[GgufVocabulary], tuple[Tokenizer, TokenDecoder]]] = {
        "gpt2": _byte_level,
        "llama": _sentencepiece,
    }
    builder = builders.get(vocabulary.model)
    if builder is None:
        raise ModelError(
            f"{vocabulary.path}: vocabularies of the kind {vocabulary.model!r} "
            "(tokenizer.ggml.model) are not known",
            expected=" or ".join(builders),
            found=vocabulary.model,
            mend="give the folder of the model's original tokenizer as `tokenizer`",
        )
    with library_errors(vocabulary.path):
        return builder(vocabulary)


@contextmanager
def library_errors(path: Path) -> Iterator[None]:
    """What the tokenizers library raises for bad data, as a ModelError that names the file.

    A panic of its Rust code is a BaseException that only its name gives away.
    """
    try:
        yield
    except ModelError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(
            f"{path}: no tokenizer can be made of it",
            found=f"{type(error).__name__}: {error}",
            mend=MEND,
        ) from error


def _vocab(tokens: Sequence[str]) -> dict[str, int]:
    """Of two equal tokens the later id is used, as llama.cpp does; empty ones have no use."""
    return {token: index for index, token in enumerate(tokens) if token}


def _byte_level(vocabulary: GgufVocabulary) -> tuple[Tokenizer, TokenDecoder]:
    from tokenizers import Tokenizer, decoders, models, normalizers

    rule = find_pre_tokenizer(vocabulary.pre, vocabulary.path)
    vocab = _vocab(vocabulary.tokens)
    backend = Tokenizer(
        models.BPE(vocab=vocab, merges=_listed_merges(vocabulary), ignore_merges=rule.ignore_merges)
    )
    if rule.nfc:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = build(rule)
    backend.decoder = decoders.ByteLevel()
    _add_marked_tokens(backend, vocabulary, vocab)
    _frame(backend, vocabulary, rule.add_bos if vocabulary.add_bos is None else vocabulary.add_bos)
    return backend, byte_level_decoder()


def _listed_merges(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    if vocabulary.merges is None:
        raise ModelError(
            f"{vocabulary.path} holds a BPE vocabulary without merges",
            expected="tokenizer.ggml.merges",
            mend=MEND,
        )
    merges: list[tuple[str, str]] = []
    for merge in vocabulary.merges:
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise ModelError(
                f"{vocabulary.path} is damaged: a merge is not a pair", found=repr(merge), mend=MEND
            )
        merges.append((left, right))
    return merges


def _sentencepiece(vocabulary: GgufVocabulary) -> tuple[Tokenizer, TokenDecoder]:
    from tokenizers import Tokenizer, decoders, models, normalizers

    gemma = vocabulary.architecture.startswith("gemma")
    tokens = _marked_spaces(vocabulary.tokens)
    vocab = _vocab(tokens)
    backend = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_implied_merges(vocabulary, tokens, vocab, by_position=gemma),
            unk_token=vocabulary.text("unknown"),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = vocabulary.add_space_prefix is not False
    replace = normalizers.Replace(" ", _MARK)
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_MARK), replace]) if prefix else replace
    )
    steps = [decoders.Replace(_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    _add_marked_tokens(backend, vocabulary, vocab)
    _frame(backend, vocabulary, vocabulary.add_bos is not False)
    spec = [*_SPACE_DECODERS, _STRIP] if prefix else _SPACE_DECODERS
    return backend, token_decoder({"type": "Sequence", "decoders": spec})


def _marked_spaces(tokens: Sequence[str]) -> list[str]:
    """Runs of spaces are stored as such, but the normalizer turns spaces into marks first."""
    return [_MARK * len(token) if token and not token.strip(" ") else token for token in tokens]


def _implied_merges(
    vocabulary: GgufVocabulary, tokens: Sequence[str], vocab: Mapping[str, int], by_position: bool
) -> list[tuple[str, str]]:
    """Merges, best first: a higher score of the result, then a longer left part.

    by_position: Gemma's scores do not follow the order of its merges; its ids do.
    """
    if vocabulary.merges is not None:
        return _listed_merges(vocabulary)
    if not by_position and not vocabulary.scores:
        raise ModelError(
            f"{vocabulary.path} holds a SentencePiece vocabulary without scores",
            expected="tokenizer.ggml.scores",
            mend=MEND,
        )
    merges: list[tuple[float, int, str, str]] = []
    never = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.BYTE)
    for index, (token, kind) in enumerate(zip(tokens, vocabulary.types, strict=True)):
        # No token of text is that long; a hostile one would cost the square of its length.
        if kind in never or not 1 < len(token) <= 512:
            continue
        score = float(-index) if by_position else vocabulary.scores[index]
        for cut in range(1, len(token)):
            left = token[:cut]
            if left in vocab and token[cut:] in vocab:
                merges.append((-score, -cut, left, token[cut:]))
    merges.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in merges]


def _add_marked_tokens(
    backend: Tokenizer, vocabulary: GgufVocabulary, vocab: Mapping[str, int]
) -> None:
    """Control tokens are special; user-defined ones are matched whole but shown."""
    from tokenizers import AddedToken

    control: list[AddedToken] = []
    shown: list[AddedToken] = []
    for token, kind in zip(vocabulary.tokens, vocabulary.types, strict=True):
        if token in vocab and kind == TokenType.CONTROL:
            control.append(AddedToken(token, normalized=False, special=True))
        elif token in vocab and kind == TokenType.USER_DEFINED:
            shown.append(AddedToken(token, normalized=False, special=False))
    backend.add_special_tokens(control)
    backend.add_tokens(shown)


def _frame(backend: Tokenizer, vocabulary: GgufVocabulary, add_bos: bool) -> None:
    """Put BOS before and EOS after a text, as far as the file says so and names them."""
    from tokenizers import processors

    bos = vocabulary.text("bos") if add_bos else None
    eos = vocabulary.text("eos") if vocabulary.add_eos else None
    if bos is None and eos is None:
        return
    pieces = [*([bos] if bos else []), "$A", *([eos] if eos else [])]
    special = [
        (token, vocabulary.ids[name]) for name, token in (("bos", bos), ("eos", eos)) if token
    ]
    backend.post_processor = processors.TemplateProcessing(single=pieces, special_tokens=special)
