"""From files to a model on its device: who opens its weights, and which definition builds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from framework.contracts.model import ArchitectureQuery, Model, ModelDefinition
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import Platform
from framework.contracts.weight_loader import WeightLoader, WeightQuery, Weights
from framework.errors import ModelError
from framework.plugins.blame import blaming, unfit
from framework.plugins.selection import select
from framework.shown import shown
from framework_torch.memory import refuse_too_large

if TYPE_CHECKING:
    import torch

DUMMY = "dummy"
_OF_A_MODEL = ("vocab_size", "max_model_len", "attention_layers", "embed", "forward", "logits")


def open_weights(context: RunnerContext) -> Weights | None:
    """None with dummy weights."""
    if context.load_format == DUMMY:
        return None
    files = context.model
    query = WeightQuery(root=files.root, files=files.weights, load_format=context.load_format)
    chosen = select(
        context.registry,
        "weight_loader",
        query,
        operator=context.choices.get("weight_loader"),
    )
    loader = cast(WeightLoader, chosen.instance)
    with blaming(loader, f"opening the weights of {files.name!r}"):
        return loader.open(files)


def build(
    context: RunnerContext, weights: Weights | None, dtype: str, device: str, platform: Platform
) -> tuple[Model, str]:
    """(the model on its device, name of its definition)."""
    names = context.model.config.get("architectures")
    if not isinstance(names, list | tuple) or not names or not isinstance(names[0], str):
        raise ModelError(
            f"the configuration of {context.model.name!r} names no architecture",
            expected='"architectures": ["..."]',
            found=repr(names),
        )
    query = ArchitectureQuery(
        architecture=names[0],
        config=context.model.config,
        trust_remote_code=context.model.trust_remote_code,
    )
    chosen = select(
        context.registry,
        "model",
        query,
        operator=context.choices.get("model"),
        # A definition that asks a large library is not imported for a model served natively.
        stop_at_first=True,
    )
    definition = cast(ModelDefinition, chosen.instance)
    if weights is None:
        refuse_too_large(context.model.name, chosen.answer, dtype, platform)
    with blaming(definition, f"building model {context.model.name!r}"):
        if weights is not None and context.progress:
            from framework_torch.progress import with_progress

            with with_progress(weights) as watched:
                model = definition.build(context.model, watched, dtype, context.seed)
        else:
            model = definition.build(context.model, weights, dtype, context.seed)
        missing = [name for name in _OF_A_MODEL if not hasattr(model, name)]
    if missing:
        raise unfit(definition, f"built {shown(model, 80)}", "a Model", f"no {', '.join(missing)}")
    if device != "cpu":
        cast("torch.nn.Module", model).to(device)
    return model, chosen.record.name
