"""What `framework explain KIND --model MODEL` asks: the query that a start would ask of that
kind.  Files are found and their heads read; no weights are loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from framework.contracts.model import ArchitectureQuery
from framework.contracts.model_source import ModelQuery
from framework.contracts.weight_loader import WeightQuery
from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.config.sections import ModelConfig
    from framework.contracts.base import Query
    from framework.plugins.registry import PluginRegistry

KINDS = ("model_source", "weight_loader", "tokenizer", "model")
"""Kinds whose query follows from a model."""


def model_query(registry: PluginRegistry, kind: str, name: str) -> Query:
    """The query of `kind` for the model `name`.

    Weights of a hub are fetched for the kind weight_loader only.  Raises ConfigError for a kind
    that is not asked about models, ModelError for files that cannot be found or read.
    """
    from framework.config.resolve import resolve

    config = resolve({"model": name}, env=os.environ, word="flag").config.model
    if kind not in KINDS:
        raise ConfigError(
            f"a {kind} is not chosen by the model alone",
            expected=f"--model with one of {', '.join(KINDS)}",
            found=f"{kind} --model {name}",
            mend="leave --model out",
        )
    query = ModelQuery(
        name=config.model,
        revision=config.revision,
        token=config.token.get_secret_value() if config.token else None,
        want_weights=kind == "weight_loader",
    )
    return query if kind == "model_source" else _of_files(registry, kind, config, query)


def _of_files(registry: PluginRegistry, kind: str, config: ModelConfig, query: ModelQuery) -> Query:
    from framework.engine.model_files import DUMMY, find_files, read_files

    root, files = find_files(registry, query)
    if kind == "weight_loader":
        return WeightQuery(root=root, files=files, load_format=config.load_format)
    if kind == "tokenizer":
        return WeightQuery(root=root, files=files)
    # "dummy" needs no weight files to read a configuration.
    without = config.model_copy(update={"load_format": DUMMY})
    model = read_files(registry, without, config.model, root, files)
    names = model.config.get("architectures") or [""]
    return ArchitectureQuery(
        architecture=str(names[0]),
        config=model.config,
        trust_remote_code=config.trust_remote_code,
    )
