"""From what the user wrote after `model=` to files and a tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from framework.contracts.base import Supported
from framework.contracts.model_source import ModelFiles, ModelQuery
from framework.contracts.weight_loader import WeightQuery
from framework.errors import FrameworkError, ModelError, PluginError
from framework.plugins.selection import ask_all, explain_table, select

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig, ModelConfig
    from framework.contracts.model_source import ModelSource
    from framework.contracts.tokenizer import Tokenizer, TokenizerLoader
    from framework.contracts.weight_loader import WeightLoader
    from framework.plugins.records import Record
    from framework.plugins.registry import PluginRegistry

DUMMY = "dummy"
"""The load format that needs no weight files."""


def find_files(registry: PluginRegistry, query: ModelQuery) -> tuple[Path, tuple[Path, ...]]:
    """(folder, weight files).  Raises ModelError with what each source said."""
    table = ask_all(registry, "model_source", query)
    best = next((row for row in table if isinstance(row.answer, Supported)), None)
    if best is None:
        raise ModelError(
            f"no model source knows {query.name!r}:\n{explain_table(table)}",
            expected="an alias, a folder or file on this machine, or a hub id",
            found=repr(query.name),
            mend="correct the name, or follow a remedy above",
        )
    registry.find("model_source", best.record.name)  # two claims to the name are an error
    source = cast("ModelSource", best.instance)
    with guarded(best.record, f"fetching model {query.name!r}"):
        return source.fetch(query)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """All that an engine reads, found by whoever may ask model sources: no process of a core can.

    tokenizer: the model's, or those of the one that the user named instead.  draft: the model of a
    speculative proposer, None without one.
    """

    model: ModelFiles
    tokenizer: ModelFiles
    draft: ModelFiles | None = None


def find_all(registry: PluginRegistry, config: EngineConfig) -> Files:
    """Raises ModelError."""
    model = find_model(registry, config.model)
    return Files(
        model=model,
        tokenizer=_find_tokenizer(registry, config.model, model),
        draft=_find_draft_model(registry, config),
    )


def find_model(registry: PluginRegistry, config: ModelConfig) -> ModelFiles:
    """Files and configuration of the model.  Raises ModelError."""
    query = ModelQuery(
        name=config.model,
        revision=config.revision,
        token=config.token.get_secret_value() if config.token else None,
        want_weights=config.load_format != DUMMY,
    )
    root, weights = find_files(registry, query)
    return read_files(registry, config, config.model, root, weights)


def _find_draft_model(registry: PluginRegistry, config: EngineConfig) -> ModelFiles | None:
    name = config.speculation.speculative_model
    if name is None:
        return None
    return find_model(registry, config.model.model_copy(update={"model": name, "revision": None}))


def read_files(
    registry: PluginRegistry,
    config: ModelConfig,
    name: str,
    root: Path,
    weights: Sequence[Path],
) -> ModelFiles:
    """Files with the configuration that their weight loader reads from them."""
    query = WeightQuery(root=root, files=tuple(weights), load_format=config.load_format)
    chosen = select(registry, "weight_loader", query)
    loader = cast("WeightLoader", chosen.instance)
    with guarded(chosen.record, f"reading the configuration of model {name!r}"):
        configuration, generation = loader.config(root, tuple(weights))
    return ModelFiles(
        name=name,
        root=root,
        weights=tuple(weights),
        format=chosen.record.name,
        config=configuration,
        generation_config=generation,
        identity=identity(root, weights),
        trust_remote_code=config.trust_remote_code,
    )


def identity(root: Path, weights: Sequence[Path]) -> str:
    """Differs whenever the weights may differ: path, size and time of change of each file."""
    digest = hashlib.sha256(str(root.resolve()).encode())
    for file in weights:
        stat = file.stat()
        digest.update(f"\0{file.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}".encode())
    return digest.hexdigest()


def load_tokenizer(registry: PluginRegistry, config: ModelConfig, model: ModelFiles) -> Tokenizer:
    """The model's tokenizer, or the one that the user named instead."""
    return read_tokenizer(registry, _find_tokenizer(registry, config, model))


def _find_tokenizer(registry: PluginRegistry, config: ModelConfig, model: ModelFiles) -> ModelFiles:
    if config.tokenizer is None:
        return model
    query = ModelQuery(
        name=config.tokenizer,
        token=config.token.get_secret_value() if config.token else None,
        want_weights=False,
    )
    root, weights = find_files(registry, query)
    return ModelFiles(
        name=config.tokenizer,
        root=root,
        weights=weights,
        format="none",
        config={},
        trust_remote_code=config.trust_remote_code,
    )


def read_tokenizer(registry: PluginRegistry, files: ModelFiles) -> Tokenizer:
    """A new tokenizer of these files."""
    query = WeightQuery(root=files.root, files=files.weights)
    chosen = select(registry, "tokenizer", query)
    loader = cast("TokenizerLoader", chosen.instance)
    with guarded(chosen.record, f"loading the tokenizer of {files.name!r}"):
        return loader.load(files)


@contextmanager
def guarded(record: Record, doing: str) -> Iterator[None]:
    """An error that a plugin did not foresee becomes one that names the plugin."""
    try:
        yield
    except FrameworkError:
        raise
    except Exception as error:
        raise PluginError(
            f"plugin {record.key} failed while {doing}: {type(error).__name__}: {error}",
            plugin=record.key,
            distribution=record.distribution,
            mend=f"see the cause above, or upgrade {record.owner}",
        ) from error
