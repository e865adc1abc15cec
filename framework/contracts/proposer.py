"""Kind `speculative_proposer`: guesses the next tokens of a request, which the model then verifies.

One runs, the one that `speculative_proposer` names, with the model runner.  In each step the model
computes the drafts of the step before together with the token that was certain.  At each place the
request's token is drawn as it is without drafts, a function of its seed, the position and the
logits there; drafts are accepted as long as they equal what was drawn.  So a proposer cannot change
a token, however bad its guesses: it only decides how many come in one step.  (Leviathan et al.
2023, "Fast Inference from Transformers via Speculative Decoding", and Chen et al. 2023,
"Accelerating Large Language Model Decoding with Speculative Sampling", accept a draft from q with
probability min(1, p/q) and sample anew from the rest; to draw from p with noise that both models
share and compare, as in Daliri et al. 2025, "Coupling without Communication and Drafter-Invariant
Speculative Decoding", leaves p the same, too, and moreover each single output.)

Order of calls: `load` once, then per request `admit`, `propose` in each step that computes it, and
`drop` when it leaves its slot; after a preemption `admit` comes again, possibly with another slot.
All calls come from one thread.

A proposer that raises in `admit` or `propose`, or proposes what cannot be, is logged, and proposes
no more for the requests of that call; their tokens are not affected.  One that raises in `load`
stops the start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from framework.contracts.base import Contract

if TYPE_CHECKING:
    import torch

    from framework.contracts.model import AttentionLayer, ForwardContext, Model
    from framework.contracts.model_source import ModelFiles
    from framework.contracts.step import I32, AdmittedRequest, Bool

Need = Literal["tokens", "hidden_states", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerContext:
    """What a proposer may know before it proposes.

    target: the model that verifies; of it `embed`, `logits` and `vocab_size` may be used.
    files: of the target.  draft_files: of `speculative_model`, or None if none was named.
    max_drafts: drafts per request and step.  max_slots, max_len: requests at one time, and the
    longest one.  dtype: of the target's cache and activations.  device: where tensors lie.
    build: makes a model of files, as the runner made the target.
    """

    target: Model
    files: ModelFiles
    draft_files: ModelFiles | None
    max_drafts: int
    max_slots: int
    max_len: int
    dtype: str
    device: str
    build: ModelBuilder


class ModelBuilder(Protocol):
    """Makes a model ready to compute.  Raises ModelError, SelectionError."""

    def __call__(self, files: ModelFiles) -> Model: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerInfo:
    """layers: attention layers of its own, under names that the target has not; the runner keeps
    a cache for them in the pages of each request, so that they share prefix hits and preemption.
    taps: layers of the target after which hidden states are wanted.  notes: start-up lines."""

    layers: Mapping[str, AttentionLayer] = field(default_factory=dict)
    taps: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class DraftForward(Protocol):
    """What a proposer with layers of its own may ask for while it proposes."""

    def context(self, slots: I32, starts: I32, counts: I32) -> ForwardContext:
        """For a forward pass of counts[r] tokens of slots[r] from position starts[r] on, one after
        another, row by row.  Positions up to `max_drafts` past the known tokens have room."""
        ...

    def sample(
        self, logits: torch.Tensor, slots: I32, positions: I32, drafts: Sequence[I32]
    ) -> I32:
        """The token that each row of logits [N, vocab] stands for, drawn as the target's is: with
        the request's parameters and the noise of that position.  drafts: before the position."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedStep:
    """R rows that the model has just computed.

    slots, starts, lengths, wanted: int32 [R].  sampled: bool [R].  tokens: int32 [max_slots, ...],
    the ids of all requests by slot; of row r the first lengths[r] are certain, and those from
    starts[r] on are new: they were computed in this step, but for the last one, which was sampled,
    where `sampled[r]`.  wanted: most drafts that are of use; 0 where nothing was sampled.
    hidden: after the final norm, [sum, H], of the tokens that were computed and are certain, row
    by row; None unless `need` says so.  taps: the same after each layer of `ProposerInfo.taps`.
    forward: None for proposers that need tokens only.
    """

    slots: I32
    starts: I32
    lengths: I32
    wanted: I32
    sampled: Bool
    tokens: I32
    hidden: torch.Tensor | None = None
    taps: tuple[torch.Tensor, ...] = ()
    forward: DraftForward | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def known(self, row: int) -> I32:
        """All certain tokens of a row, prompt and output, read-only."""
        tokens = self.tokens[self.slots[row], : self.lengths[row]]
        tokens.flags.writeable = False
        return tokens


class SpeculativeProposer(Contract):
    """need: "tokens": what was said so far is enough; `propose` gets only rows that want drafts,
    and no `speculative_model` is taken.  "hidden_states": those of the target, and perhaps heads
    from the files of `speculative_model`.  "model": a model of its own, which must be named."""

    kind: ClassVar[str] = "speculative_proposer"
    need: ClassVar[Need] = "tokens"

    def load(self, context: ProposerContext) -> ProposerInfo:
        """Once, before any other call.  Raises ConfigError, ModelError where it cannot serve."""
        return ProposerInfo()

    def admit(self, request: AdmittedRequest) -> None:
        """A request entered `request.slot`, with all its tokens."""
        return

    def drop(self, slot: int) -> None:
        """The request in `slot` left."""
        return

    @abstractmethod
    def propose(self, step: ComputedStep) -> Sequence[Sequence[int] | I32]:
        """Per row at most wanted[r] ids that may come next, the nearest first; none where nothing
        is likely, since drafts that are refused cost time.  May depend on the row's own tokens,
        parameters and hidden states alone; changes nothing that it is shown."""
