"""Plugin `tokenizer:gguf`: the tokenizer that a GGUF file carries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.tokenizer import Tokenizer, TokenizerLoader
from framework.contracts.weight_loader import WeightQuery
from framework.errors import ModelError

if TYPE_CHECKING:
    from framework_text.gguf_vocabulary import GgufVocabulary


class GgufTokenizerLoader(TokenizerLoader):
    """Reads vocabulary, special tokens and chat template from the file's metadata."""

    def answer(self, query: Any) -> Answer:
        from framework_text.gguf_metadata import is_gguf

        assert isinstance(query, WeightQuery)
        if query.files and is_gguf(query.files[0]):
            return Supported(note=f"the vocabulary in {query.files[0].name}")
        return Rejected(
            (
                Rejection(
                    code="format",
                    field="files",
                    found=[file.name for file in query.files[:1]],
                    needed="a GGUF file",
                    remedy="give a folder with a tokenizer.json",
                ),
            )
        )

    def load(self, model: ModelFiles) -> Tokenizer:
        from framework_text.gguf_metadata import read_head
        from framework_text.gguf_tokenizer import build_backend, library_errors
        from framework_text.gguf_vocabulary import end_ids, read_vocabulary
        from framework_text.text_tokenizer import Source, TextTokenizer, configured_eos_ids

        if not model.weights:
            raise ModelError(f"{model.name}: there is no GGUF file", expected="one file")
        head = read_head(model.weights[0])
        vocabulary = read_vocabulary(head)
        with library_errors(head.path):
            backend, decoder = build_backend(vocabulary)
            named = _named_tokens(vocabulary)
            special = _mark_special(backend, named.values())
        # What outlives this call refers to neither: with a large vocabulary they are large.
        path, template = head.path, vocabulary.chat_template
        source = Source(
            backend=backend,
            bos_id=backend.token_to_id(named["bos_token"]) if "bos_token" in named else None,
            special_ids=special,
            chat_template=template,
            library=lambda: _library(path, backend, template, named),
        )
        return TextTokenizer(
            source,
            decoder,
            eos_ids=[*configured_eos_ids(model), *end_ids(head)],
            texts=_written_otherwise(backend, vocabulary.tokens),
            count=len(vocabulary.tokens),
        )


def _written_otherwise(backend: Any, tokens: Sequence[str]) -> dict[int, str]:
    """Texts of ids that the library's table has not: of two that are written alike it holds one."""
    text_of = backend.id_to_token
    return {index: text for index, text in enumerate(tokens) if text_of(index) != text}


def _named_tokens(vocabulary: GgufVocabulary) -> dict[str, str]:
    """Texts of the tokens that have a role, as Transformers calls them."""
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    found = {f"{name}_token": vocabulary.text(role) for name, role in roles.items()}
    return {name: text for name, text in found.items() if text is not None}


def _mark_special(backend: Any, texts: Iterable[str]) -> list[int]:
    """Ids of these tokens; those that the file does not mark are matched whole from now on, as
    Transformers does with tokens that have a role."""
    from tokenizers import AddedToken

    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    wanted = dict.fromkeys(texts)
    backend.add_tokens([AddedToken(text, special=True) for text in wanted if text not in added])
    return [backend.token_to_id(text) for text in wanted]


def _library(path: Path, backend: Any, chat_template: str | None, named: dict[str, str]) -> Any:
    """Transformers' own tokenizer around the same backend."""
    from framework_text.gguf_tokenizer import library_errors

    with library_errors(path):
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=_NotCopied(backend),
            chat_template=chat_template,
            clean_up_tokenization_spaces=False,
            **named,
        )


class _NotCopied:
    """Transformers copies the tokenizer that it is given, which takes seconds for a vocabulary
    of 262,144 tokens; this one has no other user."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._backend
