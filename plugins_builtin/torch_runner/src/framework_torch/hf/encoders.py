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

# What older releases stored though it is counted.
COUNTED = ("embeddings.position_ids",)
# A head of the bare model for a task that is not served; heads for classes stand on it, or do not.
POOLER = ("pooler.",)


def examine_encoder(architecture: str, config: Mapping[str, Any]) -> Known | tuple[Rejection, ...]:
    """What can be built, or all reasons why it cannot."""
    model_type = _model_type(architecture, config)
    if model_type is None:
        return (
            reject(
                "architecture",
                architecture,
                "the bare model of an encoder that Transformers knows, such as BertModel, or one "
                "with a head for classes, such as BertForSequenceClassification",
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
    if classifies(architecture, model_type):
        return Known(
            architecture=architecture,
            config=built,
            spare=COUNTED,
            surplus=POOLER,
            classifies=True,
        )
    return Known(architecture=architecture, config=built, spare=COUNTED + POOLER)


def _model_type(architecture: str, config: Mapping[str, Any]) -> str | None:
    """Of a masked language model whose bare model that is, or which has a head for classes; None
    for any other."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as bare

    said = config.get("model_type")
    if not isinstance(said, str) or said not in mask_language_models():
        return None
    is_bare = architecture in _names(bare.get(said, ()))
    return said if is_bare or classifies(architecture, said) else None


def classifies(architecture: str, model_type: str) -> bool:
    """Whether that is the model of this type with a head for classes of whole texts."""
    from transformers.models.auto import modeling_auto

    names = modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    return architecture in _names(names.get(model_type, ()))


def _names(found: str | tuple[str, ...]) -> tuple[str, ...]:
    return (found,) if isinstance(found, str) else found
