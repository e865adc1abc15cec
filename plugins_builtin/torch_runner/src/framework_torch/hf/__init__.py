"""Any other decoder, by Transformers' own modelling code with our attention registered in it."""

from framework_torch.hf.definition import TransformersModel

__all__ = ["TransformersModel"]
