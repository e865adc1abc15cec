"""Kind `logits_processor`: changes logits before sampling.

The worker half lives in the runner.  Active are those that the operator named.  A request
passes arguments through `SamplingParams.extra_args[NAME]`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.base import Contract

if TYPE_CHECKING:
    import torch

    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import I32, AdmittedRequest


class LogitsProcessor(Contract):
    """changes_argmax: False promises that greedy rows may skip this processor."""

    kind: ClassVar[str] = "logits_processor"
    changes_argmax: ClassVar[bool] = True

    def validate(self, sampling: SamplingParams) -> None:
        """In the front end, before a request is queued.  Raises InputError."""
        return

    def admit(self, request: AdmittedRequest) -> None:
        """A request entered `request.slot`."""
        return

    def drop(self, slot: int) -> None:
        """The request in `slot` left."""
        return

    @abstractmethod
    def apply(self, logits: torch.Tensor, slots: I32, outputs: tuple[I32, ...]) -> None:
        """Change `logits` float32 [rows, vocab] in place, before penalties and temperature.

        slots: int32 [rows].  outputs: per row the token ids generated so far, int32 [n].
        """
