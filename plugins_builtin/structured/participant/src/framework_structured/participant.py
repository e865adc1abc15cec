"""The participant: who waits for a grammar stands aside, who runs is masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel

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
from framework_structured.asked import decode
from framework_structured.compiler import Compiler
from framework_structured.options import StructuredOptions
from framework_structured.progress import Progress, Rows
from framework_structured.reader import StructureReader
from framework_structured.thinking import Thinking

if TYPE_CHECKING:
    from framework.contracts.step import I32, StepPlan, StepResult
    from framework.contracts.structured_output import CompiledGrammar
    from framework.core.request import Request

NAME = "structured_outputs"


class StructuredOutputs(SchedulerParticipant):
    """Attends the requests that ask for structured output."""

    Options = StructuredOptions
    examples: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
        {"structured_outputs": {"regex": "[a-z]{1,20}"}},
    )

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        chosen = options if isinstance(options, StructuredOptions) else StructuredOptions()
        self._chosen = chosen
        self._compiler: Compiler | None = None
        self._ready: dict[str, Future[CompiledGrammar]] = {}
        self._progress: dict[str, Progress] = {}
        self._ends: Rows | None = None

    def front_half(self, context: EngineContext) -> StructureReader:
        return StructureReader(context, self._compiling(context).workers)

    def start(self, context: EngineContext) -> None:
        self._compiling(context)

    def close(self) -> None:
        if self._compiler is not None:
            self._compiler.close()

    def _compiling(self, context: EngineContext) -> Compiler:
        """One for both halves, where they are one instance."""
        if self._compiler is None:
            self._compiler = Compiler(context, self._chosen)
        return self._compiler

    # Scheduling

    def admit(self, request: Request) -> Admission:
        if self._compiler is None:
            raise IntegrityError("the participant was never started")
        ready = self._ready.get(request.id)
        if ready is None:
            asked = decode(request.input.extras[NAME])
            ready = self._ready[request.id] = self._compiler.ready(asked)
        if not ready.done():
            return Wait("its grammar is being compiled", ready.done)
        error = ready.exception()
        if error is None:
            return READY
        why = in_one_line(error) if isinstance(error, FrameworkError) else told(error)
        of_client = isinstance(error, InputError | UnsupportedError)
        return Refuse(f"its grammar cannot be used: {why}", failed=not of_client)

    def limit(self, request: Request, start: int, tokens: int) -> int:
        progress = self._progress.get(request.id)
        if progress is not None and progress.fault is not None:
            raise IntegrityError(progress.fault)
        return tokens

    def attach(self, plan: StepPlan, requests: Mapping[int, Request]) -> None:
        """Who enters begins with the output that it has: after a preemption there is some."""
        for entering in plan.admitted:
            if entering.slot in requests:
                matcher = self._ready[entering.request_id].result().matcher()
                thinking = self._thinking(entering.tokens[: entering.num_prompt])
                progress = Progress(matcher, self._only_ends(), thinking)
                progress.take(entering.tokens[entering.num_prompt :].tolist())
                self._progress[entering.request_id] = progress

    def absorb(self, result: StepResult, requests: Mapping[int, Request]) -> None:
        offsets = result.token_offsets
        for row, request in requests.items():
            tokens = result.token_ids[offsets[row] : offsets[row + 1]]
            self._progress[request.id].take(tokens.tolist())

    def late(self, plan: StepPlan, requests: Mapping[int, Request]) -> LateInputs | None:
        masked = [row for row in requests if plan.wants_logits[row]]
        if not masked:
            return None
        counts = plan.draft_counts if len(plan.draft_counts) else np.zeros(plan.num_rows, np.int32)
        starts = np.concatenate([[0], np.cumsum(counts)])
        room = len(masked) + int(counts[masked].sum())
        bitmask = np.empty((room, len(self._only_ends())), np.uint32)
        rows, covered = np.empty(room, np.int32), np.empty(room, np.int32)
        used = 0
        for row in masked:
            drafts = plan.draft_ids[starts[row] : starts[row + 1]].tolist()
            own = bitmask[used : used + 1 + len(drafts)]
            filled = self._progress[requests[row].id].fill(own, drafts)
            rows[used : used + filled] = row
            covered[used : used + filled] = np.arange(filled)
            used += filled
        return LateInputs(bitmask=bitmask[:used], bitmask_rows=rows[:used], covered=covered[:used])

    def release(self, request: Request) -> Hold | None:
        self._ready.pop(request.id, None)
        self._progress.pop(request.id, None)
        return None

    def _thinking(self, prompt: I32) -> Thinking | None:
        assert self._compiler is not None
        reasoning = self._compiler.reasoning()
        return None if reasoning is None else reasoning.begin(prompt.tolist())

    def _only_ends(self) -> Rows:
        """The bitmask that allows the ends of a sequence and nothing else."""
        if self._ends is None:
            assert self._compiler is not None
            vocabulary = self._compiler.vocabulary()
            self._ends = np.zeros(vocabulary.words, np.uint32)
            for token in vocabulary.eos_ids:
                self._ends[token // 32] |= np.uint32(1 << token % 32)
        return self._ends
