"""What another process needs to make the engine core that this one has configured.

Plain data: the configuration, the model's files, and the names of the plugins in use.  The
hub's token is not among them; the files are here already.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.config.choices import choices_of
from framework.config.sections import EngineConfig
from framework.contracts.model_source import ModelFiles
from framework.engine.model_files import Files
from framework.plugins.children import hand_over, take_over
from framework.plugins.kinds import Scope

if TYPE_CHECKING:
    from framework.engine.remote.process import Built
    from framework.plugins.registry import PluginRegistry

BUILDER = f"{__name__}:build"


SCOPES = (Scope.ENGINE_CORE, Scope.WORKER)


def write(
    config: EngineConfig,
    registry: PluginRegistry,
    files: Files,
    logits_processors: tuple[str, ...],
) -> bytes:
    """JSON, which unlike msgpack has integers of any size, as a config.json may.

    Raises PluginError for a plugin or an option that cannot reach another process.
    """
    settings = config.model_dump(mode="json", exclude={"model": {"token"}})
    plugins = hand_over(registry, SCOPES, choices_of(config))
    recipe = {
        "config": settings,
        "plugins": base64.b64encode(plugins).decode(),
        "model": _files(files.model),
        "tokenizer": _files(files.tokenizer),
        "draft": None if files.draft is None else _files(files.draft),
        "logits_processors": logits_processors,
    }
    return json.dumps(recipe, default=_plain).encode()


def _files(model: ModelFiles) -> dict[str, Any]:
    return {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} in the configuration of a model")


def build(recipe: bytes) -> Built:
    """The core, in the process that runs it.

    Raises PluginError with the rows that differ where this process finds other plugins.
    """
    from framework.engine.build import build_core, started_of
    from framework.engine.participants import create_participants

    found: dict[str, Any] = json.loads(recipe)
    registry = take_over(base64.b64decode(found["plugins"]))
    config = EngineConfig(**found["config"])
    participants = create_participants(registry, config)
    names = tuple(found["logits_processors"])
    files = Files(
        model=_model(found["model"]),
        tokenizer=_model(found["tokenizer"]),
        draft=None if found["draft"] is None else _model(found["draft"]),
    )
    core, notes = build_core(config, registry, files, names, participants)
    return core, started_of(core, notes)


def _model(files: Mapping[str, Any]) -> ModelFiles:
    paths = {
        "root": Path(files["root"]),
        "weights": tuple(Path(file) for file in files["weights"]),
    }
    return ModelFiles(**{**files, **paths})
