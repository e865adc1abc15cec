"""Plugin `tokenizer:gguf`: the tokenizer that a GGUF file carries."""

from __future__ import annotations

from typing import Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.tokenizer import Tokenizer, TokenizerLoader
from framework.contracts.weight_loader import WeightQuery
from framework.errors import ModelError


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
        from framework_text.text_tokenizer import TextTokenizer, configured_eos_ids

        if not model.weights:
            raise ModelError(f"{model.name}: there is no GGUF file", expected="one file")
        head = read_head(model.weights[0])
        vocabulary = read_vocabulary(head)
        backend, decoder = build_backend(vocabulary)
        roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
        tokens = {
            f"{name}_token": vocabulary.text(role)
            for name, role in roles.items()
            if role in vocabulary.ids
        }
        with library_errors(head.path):
            from transformers import PreTrainedTokenizerFast

            library = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
                tokenizer_object=_NotCopied(backend),
                chat_template=vocabulary.chat_template,
                clean_up_tokenization_spaces=False,
                **tokens,
            )
        return TextTokenizer(
            library,
            decoder,
            eos_ids=[*configured_eos_ids(model), *end_ids(head)],
            texts=vocabulary.tokens,
        )


class _NotCopied:
    """Transformers copies the tokenizer that it is given, which takes seconds for a vocabulary
    of 262,144 tokens; this one has no other user."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._backend
