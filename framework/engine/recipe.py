"""What another process needs to make the engine core that this one has configured.

Plain data: the configuration, the model's files, and the names of the plugins in use.  The
hub's token is not among them; the files are here already.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.config.sections import EngineConfig
from framework.contracts.model_source import ModelFiles
from framework.engine.remote.messages import Started

if TYPE_CHECKING:
    from framework.engine.remote.process import Built

BUILDER = f"{__name__}:build"


def write(config: EngineConfig, model: ModelFiles, logits_processors: tuple[str, ...]) -> bytes:
    """JSON, which unlike msgpack has integers of any size, as a config.json may."""
    settings = config.model_dump(mode="json", exclude={"model": {"token"}})
    files = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    recipe = {"config": settings, "model": files, "logits_processors": logits_processors}
    return json.dumps(recipe, default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a {type(value).__name__} in the configuration of a model")


def read(recipe: bytes) -> tuple[EngineConfig, ModelFiles, tuple[str, ...]]:
    """What `write` was given."""
    found: dict[str, Any] = json.loads(recipe)
    files = found["model"]
    files["root"] = Path(files["root"])
    files["weights"] = tuple(Path(file) for file in files["weights"])
    model = ModelFiles(**files)
    return EngineConfig(**found["config"]), model, tuple(found["logits_processors"])


def build(recipe: bytes) -> Built:
    """The core, in the process that runs it."""
    from framework.engine.build import build_core, build_registry, create_participants

    config, model, logits_processors = read(recipe)
    registry = build_registry(config)
    participants = create_participants(registry, config)
    core, notes = build_core(config, registry, model, logits_processors, participants)
    return core, Started(max_model_len=core.max_model_len, vocab_size=core.vocab_size, notes=notes)
