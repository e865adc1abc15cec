"""`scheduler_participant:thinking_budget`: reasoning that was long enough is ended."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, cast

import msgspec
import numpy as np

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
from framework.errors import InputError, IntegrityError, UnsupportedError
from framework.plugins.blame import told
from framework_parsers.thought import Ending, Rows, Thought, mark_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from framework.contracts.reasoning_parser import ReasoningParser
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import StepPlan, StepResult
    from framework.core.request import Request

NAME = "thinking_budget"
FIELD = "thinking_token_budget"
_Budget = Annotated[int, msgspec.Meta(ge=0)]


class BudgetReader:
    """The half in the front end."""

    serves = frozenset((FIELD,))

    def __init__(self, parser: str | None) -> None:
        self._parser = parser

    def read(self, sampling: SamplingParams) -> bytes | None:
        """The budget.  Raises UnsupportedError where nobody can tell reasoning from answers."""
        budget = sampling.thinking_token_budget
        if budget is None:
            return None
        if self._parser is None:
            raise UnsupportedError(
                f"{FIELD} is not supported: the engine was started without a reasoning parser",
                expected=f"{FIELD}=None",
                found=f"{FIELD}={budget}",
                mend="name the parser that fits the model, as in --reasoning-parser qwen3",
            )
        return msgspec.msgpack.encode(budget)


class ThinkingBudget(SchedulerParticipant):
    """Attends the requests that have a budget."""

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._context: EngineContext | None = None
        self._threads = ThreadPoolExecutor(1, "framework-thinking")
        self._ending: Future[Ending] | None = None
        self._thoughts: dict[str, Thought] = {}

    def front_half(self, context: EngineContext) -> BudgetReader:
        return BudgetReader(_chosen(context))

    def start(self, context: EngineContext) -> None:
        self._context = context

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # Scheduling

    def admit(self, request: Request) -> Admission:
        _budget(request)
        if self._ending is None:
            if self._context is None:
                raise IntegrityError("the participant was never started")
            self._ending = self._threads.submit(_ending, self._context)
        if not self._ending.done():
            return Wait("the tokenizer of its reasoning parser is being made", self._ending.done)
        error = self._ending.exception()
        if error is None:
            return READY
        return Refuse(f"{FIELD} cannot be kept: {told(error)}", failed=True)

    def limit(self, request: Request, start: int, tokens: int) -> int:
        thought = self._thoughts.get(request.id)
        if thought is not None and thought.fault is not None:
            raise IntegrityError(thought.fault)
        return tokens

    def attach(self, plan: StepPlan, requests: Mapping[int, Request]) -> None:
        """Who enters begins with the output that it has: after a preemption there is some."""
        for entering in plan.admitted:
            request = requests.get(entering.slot)
            if request is None:
                continue
            assert self._ending is not None
            ending, prompt = self._ending.result(), entering.tokens[: entering.num_prompt]
            text = ending.tokenizer.decode(prompt.tolist(), skip_special_tokens=False)
            thought = Thought(ending, text, _budget(request))
            self._thoughts[entering.request_id] = thought
            for token in entering.tokens[entering.num_prompt :].tolist():
                thought.take(token)

    def absorb(self, result: StepResult, requests: Mapping[int, Request]) -> None:
        offsets = result.token_offsets
        for row, request in requests.items():
            thought = self._thoughts[request.id]
            for token in result.token_ids[offsets[row] : offsets[row + 1]].tolist():
                thought.take(token)

    def late(self, plan: StepPlan, requests: Mapping[int, Request]) -> LateInputs | None:
        counts = plan.draft_counts if len(plan.draft_counts) else np.zeros(plan.num_rows, np.int32)
        starts = np.concatenate([[0], np.cumsum(counts)])
        assert self._context is not None
        words = -(-self._context.vocab_size // 32)
        masks: list[Rows] = []
        rows: list[int] = []
        covered: list[int] = []
        for row, request in requests.items():
            thought = self._thoughts[request.id]
            if not plan.wants_logits[row] or thought.ended:
                continue
            drafts = plan.draft_ids[starts[row] : starts[row + 1]].tolist()
            own = np.empty((1 + len(drafts), words), np.uint32)
            filled = thought.fill(own, drafts)
            masks.append(own[:filled])
            rows += [row] * filled
            covered += range(filled)
        if not rows:
            return None
        return LateInputs(
            bitmask=np.concatenate(masks),
            bitmask_rows=np.array(rows, np.int32),
            covered=np.array(covered, np.int32),
        )

    def release(self, request: Request) -> Hold | None:
        self._thoughts.pop(request.id, None)
        return None


def _budget(request: Request) -> int:
    """Raises InputError where a client wrote to this plugin in `extra_args`."""
    data = request.input.extras[NAME]
    try:
        return msgspec.msgpack.decode(data, type=_Budget)
    except msgspec.MsgspecError as error:
        raise InputError(
            f"extra_args[{NAME!r}] is invalid: {error}",
            parameter="extra_args",
            expected="an integer >= 0",
            mend=f"say {FIELD} instead",
        ) from error


def _chosen(context: EngineContext) -> str | None:
    names = context.choices.get("reasoning_parser", ())
    return names[0] if names else None


def _ending(context: EngineContext) -> Ending:
    """In a thread: the tokenizer takes a while."""
    made = context.registry.create("reasoning_parser", _chosen(context) or "", named=True)
    parser, (tokenizer, _) = cast("ReasoningParser", made), context.load_tokenizer()
    mark = mark_of(parser)
    ids = tuple(tokenizer.encode(mark, add_special_tokens=False))
    if not ids or max(ids) >= context.vocab_size:
        raise UnsupportedError(
            f"the model has no tokens for {mark!r}, which ends its reasoning",
            expected="a reasoning parser that fits the model",
        )
    return Ending(parser, tokenizer, ids)
