"""The engine in this process: adds requests, steps the core, hands out what it brings."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from framework.engine.events import Events
from framework.engine.interrupt import deferred_interrupt
from framework.engine.output_processor import OutputProcessor
from framework.errors import EngineDeadError, OverloadedError

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput, EngineOutputs, EngineStats
    from framework.contracts.tokenizer import Tokenizer
    from framework.core.operated import Operated
    from framework.core.profiling import Profiling
    from framework.engine.outputs import RequestOutput
    from framework.engine.prepared import PreparedRequest

log = logging.getLogger("framework")


class Core(Protocol):
    """What the front end asks of an engine core."""

    max_model_len: int
    vocab_size: int

    @property
    def stats(self) -> EngineStats: ...
    def check_integrity(self) -> None: ...
    def add(self, entry: EngineInput) -> None: ...
    def abort(self, request_ids: Iterable[str]) -> None: ...
    def has_work(self) -> bool: ...
    def step(self) -> EngineOutputs: ...
    def reset_prefix_cache(self) -> bool: ...
    def sleep(self, level: int) -> None: ...
    def wake_up(self) -> None: ...
    @property
    def sleeping(self) -> int: ...
    @property
    def profiling(self) -> Profiling: ...
    @property
    def operated(self) -> Operated: ...
    def close(self) -> None: ...


class InProcessClient:
    """Not for several threads at a time.  Several callers may be served in turn: each
    finds its outputs by request id, whoever made the step that brought them."""

    def __init__(self, core: Core, tokenizer: Tokenizer, events: Events | None = None) -> None:
        self.core = core
        self._processor = OutputProcessor(tokenizer)
        self._outputs: dict[str, deque[RequestOutput]] = {}
        self._events = events if events is not None else Events()
        self._dead: EngineDeadError | None = None
        self._closed = False

    @property
    def num_generated(self) -> int:
        """Tokens of all outputs since the start."""
        return self._processor.num_generated

    @property
    def num_requests(self) -> int:
        """Requests that run or wait, and whose caller still wants them."""
        return len(self._outputs)

    def started(self, notes: tuple[str, ...]) -> None:
        """Tell the hooks that the engine is ready."""
        self._events.started(notes)

    def add(self, requests: Sequence[PreparedRequest]) -> None:
        """All of them or, if one can never fit (InputError), none."""
        self._check_awake()
        with deferred_interrupt():
            added: list[EngineInput] = []
            try:
                for request in requests:
                    for engine_input in request.inputs:
                        self.core.add(engine_input)
                        added.append(engine_input)
            except BaseException:
                self._take_back(added)
                raise
            for request in requests:
                self._processor.add(request)
                self._outputs[request.request_id] = deque()
            self._events.added(added)

    def _take_back(self, added: Sequence[EngineInput]) -> None:
        ids = [engine_input.request_id for engine_input in added]
        self.core.abort(ids)
        self._processor.expect_end(ids)
        self.settle()

    def step(self) -> None:
        """One step of the core.  Raises EngineDeadError if it fails; nothing runs after that."""
        self.check()
        with deferred_interrupt():
            with self._fatal():
                outputs = self.core.step()
                self._events.stepped(outputs)
                processed = self._processor.process(outputs)
                if processed.abort:
                    self.core.abort(processed.abort)
            for request_id, output in processed.outputs.items():
                waiting = self._outputs.get(request_id)
                if waiting is not None:
                    waiting.append(output)
            self._events.first_tokens(processed.first)
            self._events.ended(processed.ended)

    def take(self, request_id: str) -> RequestOutput | None:
        """The next output of a request, or None when it has to be waited for."""
        waiting = self._outputs.get(request_id)
        if not waiting:
            return None
        output = waiting.popleft()
        if output.finished:
            del self._outputs[request_id]
        return output

    def wait(self, request_id: str) -> RequestOutput:
        """Step until the next output of a request has come, and take it."""
        while True:
            output = self.take(request_id)
            if output is not None:
                return output
            self.advance()

    def num_unfinished(self, request_ids: Iterable[str]) -> int:
        """How many of these still wait for their last output."""
        return sum(request_id in self._processor for request_id in request_ids)

    def advance(self) -> None:
        """A step, when somebody waits for an output; one that can never come is a fault."""
        self._check_awake()
        if not self.core.has_work():
            self._die("requests wait and the core has nothing to do")
        self.step()

    def drop(self, request_ids: Iterable[str]) -> None:
        """End requests without an output, and wait until the core has let them go."""
        dropped = list(request_ids)
        for request_id in dropped:
            self._outputs.pop(request_id, None)
        ended = self._processor.forget(dropped)
        if self._dead is None and not self._closed and ended:
            self.core.abort([end.request_id for end in ended])
            self._events.ended(ended)
            self.settle()

    def settle(self) -> None:
        """Step until the core has confirmed every abort, so that its pages are free again."""
        while self._dead is None and not self._processor.settled and self.core.has_work():
            self.step()

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes; False while requests use them."""
        self.check()
        return self.core.reset_prefix_cache()

    def sleep(self, level: int) -> None:
        """See EngineCore.sleep."""
        self.check()
        self.core.sleep(level)

    def wake_up(self) -> None:
        """See EngineCore.wake_up."""
        self.check()
        self.core.wake_up()

    def start_profile(self) -> None:
        """See Profiling.start."""
        self.check()
        self.core.profiling.start()

    def stop_profile(self) -> Mapping[str, Any]:
        """See Profiling.stop."""
        self.check()
        return self.core.profiling.stop()

    def control(self, name: str, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See Operated.control."""
        self.check()
        return self.core.operated.control(name, op, arguments)

    def close(self) -> None:
        """Give everything back.  May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._outputs.clear()
        try:
            self.core.close()
        finally:
            self._events.closed()
            self._events.leave()

    def check(self) -> None:
        """Raises EngineDeadError when nothing can run any more."""
        if self._closed:
            raise EngineDeadError("the engine is closed", mend="make a new LLM")
        if self._dead is not None:
            raise self._dead.with_traceback(None)

    def _check_awake(self) -> None:
        """Nobody could wake it while its caller waits."""
        self.check()
        if self.core.sleeping:
            raise OverloadedError(
                "the engine sleeps",
                expected="an engine that is awake",
                found=f"sleep of level {self.core.sleeping}",
                mend="call wake_up()",
            )

    @contextmanager
    def _fatal(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._dead = (
                error
                if isinstance(error, EngineDeadError)
                else EngineDeadError(
                    "the engine stopped after a fault in a step",
                    found=f"{type(error).__name__}: {error}",
                    mend="make a new LLM; the log has the fault",
                )
            )
            self._outputs.clear()
            if isinstance(error, Exception):
                log.exception("an engine step failed")
                if self._dead is not error:
                    raise self._dead from error
            raise

    def _die(self, what: str) -> None:
        with self._fatal():
            raise RuntimeError(what)
