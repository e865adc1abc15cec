"""The entry point; transformers is imported when it is asked, torch when a model is built."""

from __future__ import annotations

from framework.contracts.base import Answer, Rejected, Supported
from framework.contracts.model import ArchitectureQuery, Model, ModelDefinition
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import Weights
from framework.errors import ModelError, UnsupportedError


class TransformersModel(ModelDefinition):
    """Decoder-only language models of which Transformers has the code, one token mixer only:
    attention through Transformers' attention interface.

    `answer` judges by configuration and source text.  `build` then runs the model over three
    tokens and compares it with Transformers' own attention, so that a model which our
    attention would compute wrongly is refused.
    """

    def answer(self, query: ArchitectureQuery) -> Answer:
        from framework_torch.hf.architectures import Known, examine

        found = examine(query.architecture, query.config, query.trust_remote_code)
        if isinstance(found, Known):
            return Supported(note=f"{found.architecture} by Transformers' modelling code")
        return Rejected(found)

    def build(self, model: ModelFiles, weights: Weights | None, dtype: str, seed: int) -> Model:
        """The model on the host, its weights views of the files where their type agrees.

        Raises ModelError for weights that do not fit and for a configuration that cannot be
        built, UnsupportedError for a model whose attention cannot be ours.
        """
        from framework_torch.hf.architectures import Known, examine

        if weights is not None and weights.naming != "hf":
            raise UnsupportedError(
                f"{model.name}: Transformers' modelling code cannot be filled from these files",
                expected="tensors under the names of a Transformers checkpoint",
                found=f"names as in {weights.naming}",
                mend="use the safetensors files of the model",
            )
        names = model.config.get("architectures") or ("",)
        found = examine(str(names[0]), model.config, model.trust_remote_code)
        if not isinstance(found, Known):
            raise ModelError(
                f"{model.name}: Transformers' modelling code cannot serve this model",
                expected="a decoder-only language model that Transformers knows",
                found="; ".join(str(reason) for reason in found),
            )
        from framework_torch.hf.checks import verified
        from framework_torch.hf.load import load

        return verified(load(found, model, weights, dtype, seed), model.name)
