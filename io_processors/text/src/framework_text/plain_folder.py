"""Reads a folder whose tokenizer is just its tokenizer.json, without Transformers.

AutoTokenizer may give a class of the model's own, which builds its tokenizer anew, and settings may
change what is in the file.  Here are folders of which neither is true; of all others nothing is
said, and Transformers reads them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from framework_text.text_tokenizer import Source

_CLASSES = frozenset(("PreTrainedTokenizerFast", "TokenizersBackend"))
# Model types for which AutoTokenizer heeds such a class.
_MODELS = frozenset(("gemma2", "gemma3_text", "llama", "qwen3"))
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")
# What else may stand in tokenizer_config.json without a bearing on ids.
_INERT = frozenset(
    (
        *("backend", "chat_template", "clean_up_tokenization_spaces", "is_local"),
        *("local_files_only", "model_input_names", "model_max_length", "name_or_path"),
        *("padding_side", "tokenizer_class", "truncation_side"),
    )
)
# Files that say more of the tokenizer than these two.
_MORE = ("special_tokens_map.json", "added_tokens.json", "additional_chat_templates")


def read_plain(root: Path) -> tuple[Source, int | None] | None:
    """(tokenizer, id of its end-of-sequence token), or None where Transformers shall read it; it
    also says what is wrong with files that are damaged."""
    try:
        config = _object(root / "config.json")
        settings = _object(root / "tokenizer_config.json")
        if not _is_plain(root, config, settings):
            return None
        from tokenizers import Tokenizer

        backend = Tokenizer.from_file(str(root / "tokenizer.json"))
        template = _template(root, settings)
    except Exception:
        return None
    added = {token.content for token in backend.get_added_tokens_decoder().values()}
    named = {name: settings[name] for name in _NAMED if settings.get(name) is not None}
    if not all(isinstance(text, str) and text in added for text in named.values()):
        return None
    ids = {name: backend.token_to_id(text) for name, text in named.items()}
    source = Source(
        backend=backend,
        bos_id=ids.get("bos_token"),
        special_ids=ids.values(),
        chat_template=template,
        library=lambda: _library(root),
    )
    return source, ids.get("eos_token")


def _object(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text("utf-8"))
    if not isinstance(value, dict):
        raise TypeError(path)
    return value


def _is_plain(root: Path, config: dict[str, Any], settings: dict[str, Any]) -> bool:
    return (
        settings.get("tokenizer_class") in _CLASSES
        and config.get("model_type") in _MODELS
        and settings.keys() <= _INERT | set(_NAMED)
        and not any((root / name).exists() for name in _MORE)
    )


def _template(root: Path, settings: dict[str, Any]) -> str | None:
    """The file goes before the setting, as in Transformers."""
    file = root / "chat_template.jinja"
    if file.is_file():
        return file.read_text("utf-8")
    template = settings.get("chat_template")
    if template is not None and not isinstance(template, str):
        raise TypeError("several templates")
    return template


def _library(root: Path) -> Any:
    from framework_text.hf_files import load_library

    return load_library(root, trust_remote_code=False)
