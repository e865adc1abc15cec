"""Loads a folder through AutoTokenizer and says which file is to blame when that fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framework.errors import ModelError

_JSON_FILES = (
    "config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
)
_MEND = "download the model again, or give another folder as `tokenizer`"


def load_library(root: Path, *, trust_remote_code: bool) -> Any:
    """A fast tokenizer.  ModelError that names the damaged file where one is found."""
    from transformers import AutoTokenizer

    _check_small_files(root)
    try:
        library = AutoTokenizer.from_pretrained(
            str(root), trust_remote_code=trust_remote_code, local_files_only=True
        )
    except BaseException as error:
        # A panic of the tokenizers library is a BaseException known only by its name.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _diagnosis(root, error) from error
    if not getattr(library, "is_fast", False) or not hasattr(library, "backend_tokenizer"):
        raise ModelError(
            f"{root}: the tokenizer {type(library).__name__} is not a fast one",
            expected="a tokenizer.json, or files that Transformers can turn into one",
            mend="save the tokenizer with Transformers (save_pretrained) and use that folder",
        )
    return library


def decoder_spec(backend: Any) -> Mapping[str, Any] | None:
    """The "decoder" of a `tokenizers.Tokenizer` as tokenizer.json writes it."""
    decoder = backend.decoder
    if decoder is None:
        return None
    spec = json.loads(decoder.__getstate__())
    assert isinstance(spec, dict)
    return spec


def _check_small_files(root: Path) -> None:
    """The small files first: Transformers reads some of them leniently and goes on without."""
    for name in _JSON_FILES:
        if name not in ("tokenizer.json", "vocab.json"):
            _read_object(root / name)


def _read_object(path: Path) -> None:
    if not path.is_file():
        return
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged", found=str(error), mend=_MEND) from error
    if not isinstance(value, dict):
        raise ModelError(
            f"{path} is damaged", expected="a JSON object", found=type(value).__name__, mend=_MEND
        )


def _diagnosis(root: Path, error: BaseException) -> ModelError:
    for name in _JSON_FILES:
        try:
            _read_object(root / name)
        except ModelError as damaged:
            return damaged
    found = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
    if _is_of_configuration(root, error):
        return ModelError(
            f"{root / 'config.json'}: Transformers refuses this configuration",
            expected="what the model's configuration class accepts",
            found=found,
            mend="correct the model's config.json",
        )
    culprit = root / "tokenizer.json" if (root / "tokenizer.json").is_file() else root
    return ModelError(f"{culprit}: no tokenizer can be made of it", found=found, mend=_MEND)


def _is_of_configuration(root: Path, error: BaseException) -> bool:
    """Whether reading the configuration alone, which AutoTokenizer does too, fails alike."""
    from transformers import AutoConfig

    try:
        AutoConfig.from_pretrained(str(root), trust_remote_code=False, local_files_only=True)
    except Exception as own:
        return type(own) is type(error) and str(own) == str(error)
    return False
