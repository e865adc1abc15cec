"""Kind `scheduler_participant`: a say in scheduling, without a line in the scheduler.

Grammars that compile, KV pages that come from elsewhere, adapter slots, encoder budgets:
each is a participant.  It is visited only for requests it attends: those whose `extras`
hold its name, or all with `attends_all`.  All calls come from the engine core's thread and
must return at once; slow work belongs in threads or processes of the participant's own.

Of a `Request` a participant may read `id`, `input` (its EngineInput; the arguments of the client
are `msgspec.msgpack.decode(request.input.extras[NAME])`), `num_prompt` and `arrival`.  It must
change nothing that it is shown, be it a request, a plan or a result; arrays and mappings of plans
and results are read-only.

Order of calls for one request: `admit` until it is Ready and has its pages, `external_prefix`
with it (the pages may then fill while others run), then in each step `limit`, `attach`, `late`,
`absorb`, and `release` when it leaves; after a preemption all over again.  With several steps in
flight the next step's `limit` and `attach` come before this one's `late` and `absorb`.

Whatever holds a request back for longer than a few steps is told by the log, with the name of its
participant: a limit of 0, a Wait, pages that do not arrive, a Hold that others wait for.  If that
lasts `participant_timeout` seconds in which nothing else could be computed either, the requests
that are held back end with an error that names it.

A participant whose manifest has the scope `front_end` has a half there too, which may have a say
before a request is queued: see `front_half`.  The halves share nothing, as each may be in a
process of its own; where one process has both, they are one instance.

One that says which tokens an output may go on with has a base that does all else:
`framework.contracts.masking.MaskingParticipant`.

The arguments of a client come over a network and may be anything.  Those that cannot be used are
refused: by `front_half`, or by `admit` and `external_prefix`, which answer `Refuse` or raise
InputError or UnsupportedError.

A method that raises anything else, or answers anything but what it says here, ends the requests
for which it was called with an error that names the participant; requests it does not attend go
on.  For `release`, where none is left to end, it is logged, and nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from framework.contracts.base import Contract, name_of
from framework.errors import UnsupportedError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.lora import AdapterLimits
    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import LateInputs, StepPlan, StepResult
    from framework.contracts.tokenizer import Tokenizer
    from framework.core.request import Request
    from framework.plugins.registry import PluginRegistry


@dataclass(frozen=True, slots=True)
class Ready:
    """The request may run."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The request stands aside and blocks nobody.

    reason: shown in statistics.  wake: returns True when it is worth asking again; called
    once a step, so it must be cheap.
    """

    reason: str
    wake: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request can never run; it ends with this sentence as its error.

    failed: what was asked is sound, and whatever serves it has failed.  Otherwise the request
    cannot be served as it is, and only its client can change that: a server answers that the
    request is bad (HTTP 400) rather than that the server is (500).
    """

    reason: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Pages of a finished request stay until `done()` returns True (asked once a step)."""

    done: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class External:
    """Tokens beyond the local hit that exist elsewhere.

    tokens: how many.  arrived: None if the worker half has them in the cache before the step
    that computes the next token.  Otherwise they come later, and the request keeps slot and
    pages while others run; `arrived` is asked once a step and returns None (not yet), the
    number of tokens that came (fewer: the rest is computed; 0: all of it), or Refuse.

    What came lies in the pages of every group as if it had been computed here; where layers carry
    a state, each page holds that after its last token, the last page that after the last token;
    there only what comes later is taken, as a plan copies the state to the next page at once, and
    of more than can be used that up to the end of a page.
    """

    tokens: int
    arrived: Callable[[], int | Refuse | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """What a participant may know of its engine.

    registry: the plugins of this process.  choices: kind -> names that the operator chose.
    vocab_size: width of the logits; 0 in the front end, which begins before the core.
    adapters: what the operator allows of adapters; None: there are none.  control: an operation of
    the model runner, see `ModelRunner.control`, for the engine core's thread; None in the front
    end.  Raises UnsupportedError for one that the runner does not declare.
    load_tokenizer: a new tokenizer, and the ids below vocab_size that end an output.  It takes a
    while, and may be called in a thread; tokenizers are not shared between threads.
    """

    registry: PluginRegistry
    choices: Mapping[str, tuple[str, ...]]
    load_tokenizer: Callable[[], tuple[Tokenizer, frozenset[int]]]
    vocab_size: int = 0
    adapters: AdapterLimits | None = None
    control: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] | None = None


class FrontHalf(Protocol):
    """A participant's half in the front end.  Called from several threads.

    serves: what requests may ask for because there is this participant, by the names of the fields
    in `features.SERVED`; it is refused where no participant serves it.  Who serves any is asked by
    these fields alone: `extra_args` with its name are refused.
    """

    serves: frozenset[str]

    def read(self, sampling: SamplingParams) -> bytes | None:
        """What the other half gets as `extras[NAME]` of a request, which it attends then; None
        leaves the request alone.  Raises InputError or UnsupportedError for one that cannot be
        served: it is refused before it is queued."""
        ...


Admission = Ready | Wait | Refuse
READY = Ready()
NO_EXTERNAL = External(0)


class SchedulerParticipant(Contract):
    """Every method has a neutral default: override those that you need.

    examples: what requests may ask of it, as fields of SamplingParams, for users and for the
    conformance kit.  Without them that is `extra_args` with an empty mapping under its name.

    serves_adapters: it attends the requests that name an adapter, and they are refused where no
    participant does.  Their `extras` hold msgpack of {"root": folder, "pinned": bool} under its
    name then, and `extra_args` with its name are refused; `input.adapter` is the load id, which
    stands for the same weights always.  Its `control` has the operations "load" {"id", "root",
    "pinned"} and "state" {"id"}, which answer as `ModelRunner.control` has them for adapters;
    "unload" {"id"}: it goes with the last of the requests that named it before; "pin" {"id",
    "pinned"}; and "list" {}."""

    kind: ClassVar[str] = "scheduler_participant"
    attends_all: ClassVar[bool] = False
    examples: ClassVar[Sequence[Mapping[str, Any]]] = ()
    serves_adapters: ClassVar[bool] = False

    def front_half(self, context: EngineContext) -> FrontHalf | None:
        """In the front end, once: the half that reads requests there, if it has one."""
        return None

    def start(self, context: EngineContext) -> None:
        """In the engine core, once, before the first request.  What raises ends the start."""
        return

    def close(self) -> None:
        """The engine ends.  May be called twice, and without `start`."""
        return

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """A named operation for an operator, between steps; both ways numbers, texts, bytes, lists
        and mappings.  Raises UnsupportedError for another name, InputError for what cannot be
        done; no request is affected."""
        raise UnsupportedError(
            f"{name_of(self)} has no operation {shown(op):.40}", expected="none", found=shown(op)
        )

    def admit(self, request: Request) -> Admission:
        """Asked before a waiting request gets pages; again after each wake, and again in later
        steps when it was Ready and pages were lacking: the answer must not count on being the
        first.  InputError and UnsupportedError refuse the request as Refuse does."""
        return READY

    def external_prefix(self, request: Request, local_hit: int) -> External | Refuse:
        """What exists elsewhere beyond `local_hit` tokens, 0 or more.  At most all but the last
        known token is used, and no more than the cache holds at one time.  Asked again, like
        `admit`, when pages were lacking.  The pages are in the plan whose `admitted` holds the
        request.  May raise as `admit` does, and so may External.arrived."""
        return NO_EXTERNAL

    def limit(self, request: Request, start: int, tokens: int) -> int:
        """Most tokens of `request` in this step, of those from position `start` on: an integer
        from 0, which skips it this step, to `tokens`.

        The step may still be changed: a budget shared by requests may be noted here, but it
        is settled in `attach`, which sees what was planned.  To be asked again uses nothing up.
        Without chunked prefill a prompt is computed whole: less than what is left of it is 0.
        """
        return tokens

    def attach(self, plan: StepPlan, requests: Mapping[int, Request]) -> bytes | None:
        """Bytes for the participant's worker half.  requests: by slot, those that this plan
        computes or admits and that the participant attends."""
        return None

    def absorb(self, result: StepResult, requests: Mapping[int, Request]) -> None:
        """Called after a step, before tokens are handed out.  requests: by row, those that it
        attends; none if only its worker half has something to say."""

    def release(self, request: Request) -> Hold | None:
        """The request leaves (finished, aborted, preempted), or gave up waiting: once for all
        that was asked since its first `admit`, and not where another participant kept that from
        being asked.  It may come again."""
        return None

    def late(self, plan: StepPlan, requests: Mapping[int, Request]) -> LateInputs | None:
        """Inputs known only now, after the step before `plan` (bitmasks of a grammar).

        requests: attended rows of `plan` whose request has not left since.  Bitmasks may be for
        these rows only.  Where several participants mask a row, a token is allowed that all of
        them allow, and drafts count as far as all of them have masked.
        """
        return None
