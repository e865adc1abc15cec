"""An encoder of Transformers with its head for classes of whole texts.

whole(ids)   =   embed -> encoder -> head
                          ^ our attention
                                     ^ whole again, with an encoder that only hands over hidden
                                       states: what the head makes of them is its own code
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from framework.contracts.model import Model
from framework_torch.hf import interface
from framework_torch.hf.checks import TOKENS, close, not_ours, verifying
from framework_torch.hf.encoder_checks import checked
from framework_torch.hf.encoder_model import EncoderModel
from framework_torch.hf.model import run_decoder, with_part
from framework_torch.hf.observe import Observer


class EncoderClassifier(EncoderModel):
    """See `framework.contracts.model.Model`.  whole: the encoder of `bare` with its head."""

    def __init__(self, whole: Any, bare: EncoderModel, output_class: Any) -> None:
        super().__init__(
            bare.encoder, bare.facts, bare.hidden_size, bare.max_model_len, bare.first_position
        )
        self.whole = whole
        self.class_labels = _labels(whole.config)
        self._activation = _activation(whole.config)
        # In a tuple, so that torch does not count the modules twice.
        self._head = (with_part(whole, bare.encoder, _Given(bare.encoder, output_class)),)

    def classify(self, hidden: torch.Tensor, use_activation: bool) -> torch.Tensor:
        """hidden [T, H] of one whole prompt -> float32 [C]."""
        output = self._head[0](inputs_embeds=hidden[None])
        logits: torch.Tensor = output.logits[0].float()
        return self._activation(logits) if use_activation else logits


class _Given(nn.Module):
    """Stands in for the encoder; what it adds for its head is computed here, too."""

    def __init__(self, encoder: Any, output_class: Any) -> None:
        super().__init__()
        self._pooler = (getattr(encoder, "pooler", None),)
        self._output_class = output_class

    def forward(self, *_: Any, inputs_embeds: torch.Tensor, **__: Any) -> Any:
        pooler = self._pooler[0]
        if pooler is None:
            return self._output_class(last_hidden_state=inputs_embeds)
        return self._output_class(
            last_hidden_state=inputs_embeds, pooler_output=pooler(inputs_embeds)
        )


def verified_classifier(whole: Any, name: str) -> Model:
    """The module as a model that is known to be right.  Raises UnsupportedError."""
    with verifying(whole, name, "an encoder with a head for classes"):
        encoder = getattr(whole, whole.base_model_prefix)
        bare = checked(encoder)
        table = encoder.get_input_embeddings().weight
        ids = torch.arange(TOKENS, device=table.device) % len(table)
        positions = torch.arange(TOKENS, device=table.device) + bare.first_position
        with interface.attending(Observer(longest=0, examine=False)):
            output = encoder(input_ids=ids[None])
            expected = whole(input_ids=ids[None]).logits[0].float()
            hidden = run_decoder(encoder, bare.embed(ids), positions)
        model = EncoderClassifier(whole, bare, type(output)).eval()
        found = model.classify(hidden, False)
        if expected.shape != (len(model.class_labels),):
            raise not_ours(f"one number for each of {len(model.class_labels)} classes", expected)
        if not close(expected, found):
            raise not_ours(
                "the classes of Transformers' own forward",
                f"numbers that differ by up to {(expected - found).abs().max():.3g}",
            )
        return model


def _labels(config: Any) -> tuple[str, ...]:
    return tuple(str(config.id2label[number]) for number in range(config.num_labels))


def _activation(config: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """What the model was trained with; several classes exclude each other if it says nothing."""
    if config.problem_type == "regression":
        return lambda logits: logits
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return torch.sigmoid
    return lambda logits: torch.softmax(logits, -1)
