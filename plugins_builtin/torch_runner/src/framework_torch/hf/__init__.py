"""Other decoders, and encoders, by Transformers' own modelling code with our attention registered
in it."""

from framework_torch.hf.definition import TransformersModel
from framework_torch.hf.encoder_definition import TransformersEncoder

__all__ = ["TransformersEncoder", "TransformersModel"]
