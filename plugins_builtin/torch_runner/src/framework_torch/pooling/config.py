"""How a model pools: what its folder says in the files of sentence-transformers.

modules.json            the chain: Transformer, Pooling, and perhaps Normalize
1_Pooling/config.json   which of the hidden states count
sentence_bert_config.json   the length that the model was trained for
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from framework.contracts.pooling import POOLINGS, Pooling
from framework.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from framework.contracts.model_source import ModelFiles

MODULES = "modules.json"
LENGTH = "sentence_bert_config.json"
# Flags of a Pooling module; a model may set one of them.
_MODES: Mapping[str, Pooling] = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
_NAMES: Mapping[str, Pooling] = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
_MODE = "pooling_mode_"
# Of the Transformer module; weights and configuration lie beside modules.json or there.
_OWN = ("Transformer", "Pooling", "Normalize")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingConfig:
    """pooling, normalize: where a request says nothing.  max_length: of a prompt, in tokens, or
    None."""

    pooling: Pooling
    normalize: bool
    max_length: int | None = None


def pooling_of(model: ModelFiles, option: str | None, *, needed: bool) -> PoolingConfig | None:
    """How vectors are made with this model; None: it was not loaded to make any.

    option: the operator's choice in place of the model's.  needed: there is nothing else that the
    model can be asked for; else nothing is assumed of one without files of sentence-transformers.
    Raises ModelError for files that are damaged or missing, UnsupportedError for a chain that is
    not Transformer, Pooling, Normalize.
    """
    if option is not None and option not in POOLINGS:
        raise ModelError(f"unknown pooling {option!r}", expected=", ".join(POOLINGS))
    chosen = cast("Pooling | None", option)
    own = read_pooling(model.root, chosen) if model.root.is_dir() else None
    if own is None and chosen is not None:
        return PoolingConfig(pooling=chosen, normalize=True)
    if own is None and needed:
        raise ModelError(
            f"{model.name}: the model does not say how its hidden states become one vector",
            expected=f"{MODULES} and 1_Pooling/config.json, as sentence-transformers writes them",
            found="no such files",
            mend='load it with pooling="mean", "cls" or "last"',
        )
    return own


def read_pooling(root: Path, chosen: Pooling | None = None) -> PoolingConfig | None:
    """What the files of sentence-transformers in `root` say; None without them.  chosen: in place
    of the pooling that they name."""
    if not (root / MODULES).is_file():
        return None
    modules = [_module(entry, root / MODULES) for entry in _list(root / MODULES)]
    kinds = [kind for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnsupportedError(
            f"{root / MODULES}: embeddings are made in a way that is not served",
            expected="Transformer, Pooling and, at most, Normalize",
            found=", ".join(kinds) or "no modules",
            mend="use another embedding model",
        )
    folder = _inside(root, modules[1][1])
    return PoolingConfig(
        pooling=_mode(folder / "config.json") if chosen is None else chosen,
        normalize="Normalize" in kinds,
        max_length=_length(root / LENGTH),
    )


def _module(entry: object, file: Path) -> tuple[str, str]:
    """(class, folder) of an entry of modules.json."""
    if isinstance(entry, dict):
        kind, path = entry.get("type"), entry.get("path")
        if isinstance(kind, str) and isinstance(path, str):
            return kind.rpartition(".")[2], path
    raise _damaged(file, 'entries with "type" and "path"', entry)


def _inside(root: Path, path: str) -> Path:
    """A folder that the model names, which may not lead out of its own."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise _damaged(root / MODULES, "folders of the model", path)
    return root / parts


def _mode(file: Path) -> Pooling:
    config = _mapping(file)
    flags = [name for name, on in config.items() if name.startswith(_MODE) and on is True]
    named = config.get("pooling_mode")  # newer releases write a name instead
    if isinstance(named, str) and not flags:
        if named in _NAMES:
            return _NAMES[named]
        flags = [f"{_MODE}{named}"]
    if len(flags) == 1 and flags[0] in _MODES:
        return _MODES[flags[0]]
    raise UnsupportedError(
        f"{file}: this pooling is not served",
        expected=f"one of {', '.join(_MODES)}",
        found=", ".join(flags) or "none",
        mend="use another embedding model, or choose with the option pooling",
    )


def _length(file: Path) -> int | None:
    if not file.is_file():
        return None
    length = _mapping(file).get("max_seq_length")
    if length is None or (type(length) is int and length > 0):
        return length
    raise _damaged(file, "max_seq_length of at least 1", length)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            f"{file} is missing, which {MODULES} names",
            expected="all files of the model",
            mend="fetch the model again",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, "a file in JSON", error) from error


def _list(file: Path) -> list[Any]:
    found = _read(file)
    if not isinstance(found, list):
        raise _damaged(file, "a list", found)
    return found


def _mapping(file: Path) -> dict[str, Any]:
    found = _read(file)
    if not isinstance(found, dict):
        raise _damaged(file, "an object", found)
    return found


def _damaged(file: Path, expected: str, found: object) -> ModelError:
    return ModelError(
        f"{file} cannot be used",
        expected=expected,
        found=f"{found!r:.80}",
        mend="correct the file, or fetch the model again",
    )
