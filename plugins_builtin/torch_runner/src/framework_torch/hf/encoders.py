"""Which encoders Transformers' modelling code can serve here.  Nothing heavy is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.contracts.base import Rejection
from framework_torch.hf.architectures import (
    INTERFACE,
    Known,
    configuration,
    invalid,
    mask_language_models,
    reject,
    shape_of,
    source,
)

# What older releases stored though it is counted, and a head for a task that is not served.
SPARE = ("embeddings.position_ids", "pooler.")


def examine_encoder(architecture: str, config: Mapping[str, Any]) -> Known | tuple[Rejection, ...]:
    """What can be built, or all reasons why it cannot."""
    model_type = _model_type(architecture, config)
    if model_type is None:
        return (
            reject(
                "architecture",
                architecture,
                "the bare model of an encoder that Transformers knows, such as BertModel",
            ),
        )
    reasons = list(shape_of(config))
    if config.get("is_decoder"):
        reasons.append(reject("is_decoder", True, "an encoder"))
    if reasons:
        return tuple(reasons)
    try:
        built = configuration(model_type, config)
    except Exception as error:  # validators and properties raise classes of several libraries
        return (invalid(model_type, error),)
    text = source(architecture, model_type)
    if text is None or INTERFACE not in text:
        return (
            reject(
                "attention_interface",
                model_type,
                "modelling code that calls Transformers' attention interface",
            ),
        )
    return Known(architecture=architecture, config=built, spare=SPARE)


def _model_type(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Of a masked language model whose bare model that is; None for any other."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as bare

    said = config.get("model_type")
    if isinstance(said, str) and said in mask_language_models():
        names = bare.get(said, ())
        if architecture in ((names,) if isinstance(names, str) else names):
            return said
    return None
