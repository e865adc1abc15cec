"""Kind `logits_processor`: changes logits before sampling.

Active are those that the operator named.  A request passes arguments through
`SamplingParams.extra_args[NAME]`.  Two instances are made, with equal options: the front end's
is asked to `validate`, the runner's gets all other calls; they share nothing.  A slot's calls
are `admit`, then `apply` in each step that samples it, then `drop`; after a preemption `admit`
comes again, possibly with another slot.

A processor that raises in `admit` or `apply` ends the requests it raised for, with an error that
names it; one that raises in `drop` is logged.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.base import Contract

if TYPE_CHECKING:
    import torch

    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import I32, AdmittedRequest


class LogitsProcessor(Contract):
    """changes_argmax: False promises that greedy rows may skip this processor.
    examples: arguments that a request may pass, for its users and for the conformance kit.
    """

    kind: ClassVar[str] = "logits_processor"
    changes_argmax: ClassVar[bool] = True
    examples: ClassVar[tuple[Any, ...]] = ()

    def validate(self, sampling: SamplingParams) -> None:
        """In the front end, before a request is queued.  Raises InputError for arguments that
        `admit` or `apply` could not take: they come from the network, and may be anything."""
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

        slots: int32 [rows]; a slot may occur more than once (drafts).  outputs: per row the
        token ids generated so far, int32 [n], to be read only.  Rows that this processor was
        given no arguments for are among them and must be left alone.  When a call raises, its
        rows are tried again one by one on the logits from before: keep no count of calls.
        Minus infinity stands for a token that is forbidden, and should stay.
        """
