"""`scheduler_participant:thinking_budget`: reasoning that was long enough is ended."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, cast

import msgspec

from framework.contracts.masking import MaskingParticipant
from framework.contracts.participant import EngineContext
from framework.errors import InputError, IntegrityError, UnsupportedError
from framework_parsers.thought import Ending, Thought, mark_of

if TYPE_CHECKING:
    from pydantic import BaseModel

    from framework.contracts.reasoning_parser import ReasoningParser
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import I32
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


class ThinkingBudget(MaskingParticipant[Ending]):
    """Attends the requests that have a budget."""

    waiting = "the tokenizer of its reasoning parser is being made"
    unusable = f"{FIELD} cannot be kept"

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        self._context: EngineContext | None = None
        self._threads = ThreadPoolExecutor(1, "framework-thinking")
        self._ending: Future[Ending] | None = None

    def front_half(self, context: EngineContext) -> BudgetReader:
        return BudgetReader(_chosen(context))

    def start(self, context: EngineContext) -> None:
        super().start(context)
        self._context = context

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def prepare(self, request: Request) -> Future[Ending]:
        """One for all."""
        _budget(request)
        if self._ending is None:
            if self._context is None:
                raise IntegrityError("the participant was never started")
            self._ending = self._threads.submit(_ending, self._context)
        return self._ending

    def begin(self, request: Request, prompt: I32, made: Ending) -> Thought:
        text = made.tokenizer.decode(prompt.tolist(), skip_special_tokens=False)
        return Thought(made, text, _budget(request))


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
