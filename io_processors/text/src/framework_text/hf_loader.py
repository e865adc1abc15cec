"""Plugin `tokenizer:hf`: a folder with tokenizer files, as Transformers' AutoTokenizer reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from framework.contracts.base import Answer, Rejected, Rejection, Supported
from framework.contracts.model_source import ModelFiles
from framework.contracts.tokenizer import Tokenizer, TokenizerLoader
from framework.contracts.weight_loader import WeightQuery

# Any of these makes a folder one that AutoTokenizer may know what to do with.
_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")


class HfTokenizerLoader(TokenizerLoader):
    """Needs a fast tokenizer: its pieces are known exactly, and it releases the lock."""

    def answer(self, query: Any) -> Answer:
        assert isinstance(query, WeightQuery)
        present = [name for name in _FILES if _exists(query.root / name)]
        if present:
            return Supported(note=f"{present[0]} in {query.root}")
        return Rejected(
            (
                Rejection(
                    code="files",
                    field="root",
                    found=str(query.root),
                    needed=f"a folder with one of {', '.join(_FILES)}",
                    remedy="give the folder of the model's tokenizer as `tokenizer`",
                ),
            )
        )

    def load(self, model: ModelFiles) -> Tokenizer:
        from framework_text.bytes_of_tokens import token_decoder
        from framework_text.hf_files import decoder_spec, load_library
        from framework_text.plain_folder import read_plain
        from framework_text.text_tokenizer import Source, TextTokenizer, configured_eos_ids

        found = read_plain(model.root)
        if found is not None:
            source, own = found
        else:
            library = load_library(model.root, trust_remote_code=model.trust_remote_code)
            source, own = Source.of(library), library.eos_token_id
        return TextTokenizer(
            source,
            token_decoder(decoder_spec(source.backend)),
            eos_ids=[*configured_eos_ids(model), *([] if own is None else [own])],
        )


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
