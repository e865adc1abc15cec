"""The entry point of encoders; transformers is imported when it is asked, torch when one is
built."""

from __future__ import annotations

from framework.contracts.base import Answer, Rejected, Supported
from framework.contracts.model import ArchitectureQuery, Model, ModelDefinition
from framework.contracts.model_source import ModelFiles
from framework.contracts.weight_loader import Weights
from framework.errors import ModelError


class TransformersEncoder(ModelDefinition):
    """Encoders of which Transformers has the code (BERT and its like), as their bare models:
    hidden states of every token, each of which sees the whole prompt; or with their head for
    classes of whole texts.

    As with `TransformersModel`, what is built is compared with Transformers' own forward.
    """

    def answer(self, query: ArchitectureQuery) -> Answer:
        from framework_torch.hf.architectures import Known
        from framework_torch.hf.encoders import examine_encoder

        found = examine_encoder(query.architecture, query.config)
        if isinstance(found, Known):
            return Supported(note=f"{found.architecture} by Transformers' modelling code")
        return Rejected(found)

    def build(self, model: ModelFiles, weights: Weights | None, dtype: str, seed: int) -> Model:
        """The model on the host.  Raises ModelError for weights that do not fit and for a
        configuration that cannot be built, UnsupportedError where our attention differs."""
        from framework_torch.hf.architectures import Known
        from framework_torch.hf.encoders import examine_encoder

        names = model.config.get("architectures") or ("",)
        found = examine_encoder(str(names[0]), model.config)
        if not isinstance(found, Known):
            raise ModelError(
                f"{model.name}: Transformers' modelling code cannot serve this model",
                expected="an encoder that Transformers knows",
                found="; ".join(str(reason) for reason in found),
            )
        from framework_torch.hf.encoder_checks import verified_encoder
        from framework_torch.hf.load import load

        module = load(found, model, weights, dtype, seed)
        if found.classifies:
            from framework_torch.hf.classifier import verified_classifier

            return verified_classifier(module, model.name)
        return verified_encoder(module, model.name)
