"""The base of participants that say which tokens an output may go on with.

A grammar and a budget of reasoning differ in what has to be ready before a request may run, and in
what they allow after its tokens.  Everything between is the same, and done here: who waits stands
aside, who enters begins with the output that it has, and in each step every place of a row, that
after each of its drafts too, gets its mask.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from framework.contracts.participant import (
    READY,
    Admission,
    EngineContext,
    Hold,
    Refuse,
    SchedulerParticipant,
    Wait,
)
from framework.contracts.step import LateInputs
from framework.errors import FrameworkError, InputError, IntegrityError, UnsupportedError
from framework.plugins.blame import in_one_line, told

if TYPE_CHECKING:
    from pydantic import BaseModel

    from framework.contracts.step import I32, StepPlan, StepResult
    from framework.core.request import Request

logger = logging.getLogger(__name__)
Masks = npt.NDArray[np.uint32]
T = TypeVar("T")


class MaskedOutput(Protocol):
    """Where one output stands.  fault: why it cannot go on, if so; its request ends with it."""

    @property
    def fault(self) -> str | None: ...

    def take(self, tokens: Sequence[int]) -> None:
        """The output goes on with these."""
        ...

    def fill(self, rows: Masks, drafts: Sequence[int]) -> int:
        """The mask of the next token and those after each of `drafts`, as far as it is known what
        may come there: rows uint32 [1 + drafts, words], token t is bit t % 32 of word t // 32.
        Changes nothing else.  Returns how many were filled; 0 where all tokens are allowed at
        every place."""
        ...


class _Broken:
    """In place of an output that failed: nothing may come, and its request ends."""

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def take(self, tokens: Sequence[int]) -> None:
        return

    def fill(self, rows: Masks, drafts: Sequence[int]) -> int:
        rows[0] = 0
        return 1


class MaskingParticipant(SchedulerParticipant, Generic[T]):
    """Override `prepare` and `begin`; what these need at the start is made in `start`.

    An output whose `begin`, `take` or `fill` raises ends its own request, and no other.

    waiting: what a request waits for, as statistics show it.  unusable: what is wrong where that
    failed, the beginning of the sentence with which its request ends.
    """

    waiting: ClassVar[str]
    unusable: ClassVar[str]

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._words = 0
        self._made: dict[str, Future[T]] = {}
        self._outputs: dict[str, MaskedOutput] = {}

    @abstractmethod
    def prepare(self, request: Request) -> Future[T]:
        """What a request needs before it may run; several may need the same.  Asked once from its
        first `admit` to its `release`, and returns at once.  Of an error InputError and
        UnsupportedError are the client's fault.  May raise as `admit` does."""

    @abstractmethod
    def begin(self, request: Request, prompt: I32, made: T) -> MaskedOutput:
        """The state before the first token after `prompt` int32 [n]."""

    def start(self, context: EngineContext) -> None:
        self._words = -(-context.vocab_size // 32)

    def admit(self, request: Request) -> Admission:
        made = self._made.get(request.id)
        if made is None:
            made = self._made[request.id] = self.prepare(request)
        if not made.done():
            return Wait(self.waiting, made.done)
        error = made.exception()
        if error is None:
            return READY
        why = in_one_line(error) if isinstance(error, FrameworkError) else told(error)
        of_client = isinstance(error, InputError | UnsupportedError)
        return Refuse(f"{self.unusable}: {why}", failed=not of_client)

    def limit(self, request: Request, start: int, tokens: int) -> int:
        output = self._outputs.get(request.id)
        if output is not None and output.fault is not None:
            raise IntegrityError(output.fault)
        return tokens

    def attach(self, plan: StepPlan, requests: Mapping[int, Request]) -> None:
        """Who enters begins with the output that it has: after a preemption there is some."""
        for entering in plan.admitted:
            request = requests.get(entering.slot)
            if request is not None:
                prompt, output = np.split(entering.tokens, [entering.num_prompt])
                made = self._made[request.id].result()
                try:
                    begun = self._outputs[request.id] = self.begin(request, prompt, made)
                    begun.take(output.tolist())
                except Exception as error:
                    self._break(request, error)

    def absorb(self, result: StepResult, requests: Mapping[int, Request]) -> None:
        offsets = result.token_offsets
        for row, request in requests.items():
            tokens = result.token_ids[offsets[row] : offsets[row + 1]]
            try:
                self._outputs[request.id].take(tokens.tolist())
            except Exception as error:
                self._break(request, error)

    def late(self, plan: StepPlan, requests: Mapping[int, Request]) -> LateInputs | None:
        masked = [row for row in requests if plan.wants_logits[row]]
        if not masked:
            return None
        counts = plan.draft_counts if len(plan.draft_counts) else np.zeros(plan.num_rows, np.int32)
        starts = np.concatenate([[0], np.cumsum(counts)])
        room = len(masked) + int(counts[masked].sum())
        bitmask = np.empty((room, self._words), np.uint32)
        rows, covered = np.empty(room, np.int32), np.empty(room, np.int32)
        used = 0
        for row in masked:
            drafts = plan.draft_ids[starts[row] : starts[row + 1]].tolist()
            own = bitmask[used : used + 1 + len(drafts)]
            try:
                filled = self._outputs[requests[row].id].fill(own, drafts)
            except Exception as error:
                filled = self._break(requests[row], error).fill(own, drafts)
            rows[used : used + filled] = row
            covered[used : used + filled] = np.arange(filled)
            used += filled
        if not used:
            return None
        return LateInputs(bitmask=bitmask[:used], bitmask_rows=rows[:used], covered=covered[:used])

    def _break(self, request: Request, error: Exception) -> _Broken:
        broken = self._outputs[request.id] = _Broken(told(error))
        logger.error("masks of request %s: %s", request.id, broken.fault, exc_info=error)
        return broken

    def release(self, request: Request) -> Hold | None:
        self._made.pop(request.id, None)
        self._outputs.pop(request.id, None)
        return None
