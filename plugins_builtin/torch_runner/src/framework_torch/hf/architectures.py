"""Which architectures Transformers' modelling code can serve here.  No weights and no modelling
code are loaded: mappings of names, the configuration, and the text of the modelling file."""

from __future__ import annotations

import copy
import importlib.util
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framework.contracts.base import Rejection
from framework.plugins.near import did_you_mean

SERVED_LAYERS = ("full_attention", "sliding_attention")
# Class attribute of models that keep a state beside the attention cache.
STATEFUL = "_is_stateful = True"
INTERFACE = "ALL_ATTENTION_FUNCTIONS"
AUTO_CLASS = "AutoModelForCausalLM"
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
MOST_LAYERS = 10_000
OTHER = "let another definition serve it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An architecture that may be built.

    config: a Transformers configuration; None when it is remote code that has to read it.
    remote: reference of the class in the model's own code, as in `auto_map`, or None.
    spare: parts of the names of tensors that are not read, as nothing is made of them.  surplus:
    of those for which the modules may have no place.  classifies: there is a head for classes.
    """

    architecture: str
    config: Any
    remote: str | None = None
    spare: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    classifies: bool = False

    def spares(self, name: str) -> bool:
        """Whether the tensor of that name is not read."""
        return any(part in name for part in self.spare)


def examine(
    architecture: str, config: Mapping[str, Any], trust_remote_code: bool
) -> Known | tuple[Rejection, ...]:
    """What can be built, or all reasons why it cannot."""
    model_type = _model_type(architecture, config)
    if model_type is None:
        return _unknown(architecture, config, trust_remote_code)
    reasons = list(_shape_reasons(architecture, config, model_type))
    if reasons:
        return tuple(reasons)
    try:
        built = configuration(model_type, config)
        reasons += _config_reasons(built)
    except Exception as error:  # validators and properties raise classes of several libraries
        return (invalid(model_type, error),)
    reasons += _source_reasons(architecture, model_type)
    return tuple(reasons) if reasons else Known(architecture=architecture, config=built)


def _causal() -> dict[str, tuple[str, ...]]:
    """Names of the causal language models, by model type."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as names

    return {kind: (name,) if isinstance(name, str) else tuple(name) for kind, name in names.items()}


def _model_type(architecture: str, config: Mapping[str, Any]) -> str | None:
    """As the configuration says, else by the name of the architecture; None if unknown."""
    from transformers import CONFIG_MAPPING

    said = config.get("model_type")
    if isinstance(said, str) and said in CONFIG_MAPPING:
        return said
    return next((kind for kind, names in _causal().items() if architecture in names), None)


def _unknown(
    architecture: str, config: Mapping[str, Any], trust_remote_code: bool
) -> Known | tuple[Rejection, ...]:
    import transformers

    remote = config.get("auto_map")
    remote = remote.get(AUTO_CLASS) if isinstance(remote, Mapping) else None
    if isinstance(remote, str) and trust_remote_code:
        return Known(architecture=architecture, config=None, remote=remote)
    remedy = f"install a model plugin that serves it; transformers is {transformers.__version__}"
    if isinstance(remote, str):
        remedy = "the model brings code of its own: set trust_remote_code if you trust its author"
    known = {name for names in _causal().values() for name in names}
    near = did_you_mean(architecture, known)
    return (
        Rejection(
            code="architecture",
            field="architecture",
            found=architecture,
            needed=f"one of the {len(known)} that Transformers knows{near}",
            remedy=remedy,
        ),
    )


def _shape_reasons(
    architecture: str, config: Mapping[str, Any], model_type: str
) -> Iterator[Rejection]:
    """What kind of model this is at all."""
    if architecture not in _causal().get(model_type, ()):
        if config.get("is_encoder_decoder") or architecture.endswith("ForConditionalGeneration"):
            kind = "an encoder-decoder or multimodal model"
        else:
            kind = "not a causal language model"
        expected = ", ".join(_causal().get(model_type, ())) or "none for this model type"
        yield reject(
            "architecture",
            architecture,
            f"a decoder-only language model ({expected}); it is {kind}",
        )
    elif config.get("is_encoder_decoder"):
        yield reject("is_encoder_decoder", True, "a decoder-only model")
    yield from shape_of(config)


def shape_of(config: Mapping[str, Any]) -> Iterator[Rejection]:
    """What no model that is served here may have in its configuration."""
    towers = [
        key
        for key in ("text_config", "vision_config", "audio_config", "encoder", "decoder")
        if config.get(key) is not None
    ]
    if towers:
        yield reject("multimodal", towers, "a text model whose configuration is not nested")
    for key in LAYER_COUNTS:
        # Before a configuration makes lists of that length.
        if isinstance(config.get(key), int) and config[key] > MOST_LAYERS:
            yield reject(
                key, config[key], f"at most {MOST_LAYERS}", "correct the model's config.json"
            )
    for key, value in _numbers(config):
        if not math.isfinite(value):
            yield reject(key, value, "a finite number", "correct the model's config.json")
    if config.get("quantization_config") is not None:
        yield reject(
            "quantization_config",
            config["quantization_config"],
            "weights that are not quantized",
            "use an unquantized checkpoint",
        )


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Floats by their keys, those of nested mappings too.  Lists are passed over: in some of
    them inf is a limit that does not bind."""
    for key, value in config.items():
        if isinstance(value, float):
            yield str(key), value
        elif isinstance(value, Mapping):
            yield from ((f"{key}.{name}", number) for name, number in _numbers(value))


def configuration(model_type: str, config: Mapping[str, Any]) -> Any:
    """The configuration as an object.  Raises whatever its validators raise."""
    from transformers import CONFIG_MAPPING

    given = {key: value for key, value in copy.deepcopy(dict(config)).items() if key != "auto_map"}
    return CONFIG_MAPPING[model_type].from_dict(given)


def _config_reasons(config: Any) -> Iterator[Rejection]:
    kinds = set(getattr(config, "layer_types", None) or ()) - set(SERVED_LAYERS)
    if kinds:
        yield reject("layer_types", sorted(map(str, kinds)), f"only {' and '.join(SERVED_LAYERS)}")
    if getattr(config, "is_decoder", None) is False and config.model_type in mask_language_models():
        yield reject("is_decoder", False, "true: as it stands the model sees both ways")
    if getattr(config, "is_causal", True) is False:
        yield reject("is_causal", False, "true")
    if getattr(config, "alibi", False):
        yield reject("alibi", True, "position in the queries and keys, not in a bias")


def invalid(model_type: str, error: Exception) -> Rejection:
    """The reason against a configuration that Transformers does not accept."""
    text = " ".join(str(error).split())
    return reject(
        "config",
        f"{type(error).__name__}: {text:.300}",
        f"a valid configuration of model type {model_type!r}",
        "correct the model's config.json",
    )


def mask_language_models() -> frozenset[str]:
    """Model types that are masked language models first and can be told to decode."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return frozenset(MODEL_FOR_MASKED_LM_MAPPING_NAMES)


def _source_reasons(architecture: str, model_type: str) -> Iterator[Rejection]:
    """By the text of the modelling file; importing it would cost a second or two, and what the
    text does not show is found when the model is built."""
    text = source(architecture, model_type)
    if text is None:
        return
    if STATEFUL in text:
        yield reject(
            "state_space", model_type, "attention in every layer (no recurrent or linear layers)"
        )
    elif INTERFACE not in text:
        yield reject(
            "attention_interface",
            model_type,
            "modelling code that calls Transformers' attention interface; this one computes "
            "its attention itself",
        )


def source(architecture: str, model_type: str) -> str | None:
    """Text of the file that defines the class; None if it is not where such files are."""
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    others = (kind for kind, names in _causal().items() if architecture in names)
    for kind in (model_type, *others):
        try:
            spec = importlib.util.find_spec(
                f"transformers.models.{model_type_to_module_name(kind)}"
            )
        except ModuleNotFoundError:
            continue
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(folder).glob("modeling_*.py")):
                text = path.read_text(encoding="utf-8")
                if f"class {architecture}(" in text:
                    return text
    return None


def reject(field: str, found: object, needed: str, remedy: str = OTHER) -> Rejection:
    """A reason; `field` is one of the configuration, or what kind of model it is."""
    names = {"architecture": "architecture", "multimodal": "config", "config": "config"}
    return Rejection(
        code=field,
        field=names.get(field, f"config.{field}"),
        found=found,
        needed=needed,
        remedy=remedy,
    )
