"""The front end's end: calls with answers, and what the steps bring, for one event loop."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from framework.contracts.messages import EngineInput, EngineOutputs
from framework.engine.remote.links import KILL_AFTER, ClientLink
from framework.engine.remote.messages import (
    Abort,
    Add,
    Answer,
    Beat,
    Call,
    Died,
    Outputs,
    Reply,
    Started,
    Stop,
)
from framework.errors import EngineDeadError, FrameworkError

POLL_SECONDS = 0.2
"""How often the reader looks whether the other end still lives."""
AT_ONCE = 512
"""Tokens and log-probabilities that are heard in one turn of the loop, or as many messages; the
last one is heard whole.  A core may bring more than the front end can take; signals, clients and
ends have their turns all the same."""


class AsyncCore:
    """An engine core at the other end of a link.  Used on one event loop.

    on_outputs: called on the loop with what each step brought.  on_death: called once on the
    loop when nothing more can come.  signs: messages that have come.  busy: seconds that the step
    which is being made had taken at the last one.
    """

    def __init__(
        self,
        link: ClientLink,
        *,
        on_outputs: Callable[[EngineOutputs], None],
        on_death: Callable[[EngineDeadError], None],
    ) -> None:
        self._link = link
        self._on_outputs = on_outputs
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Started] = self._loop.create_future()
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._accepted: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._closing = False
        self._ended = asyncio.Event()
        self.dead: FrameworkError | None = None
        self.signs = 0
        self.busy = 0.0
        self._news: deque[tuple[Callable[[Any], None], object, int]] = deque()
        self._woken = False
        self._reader = threading.Thread(target=self._read, name="framework-reader", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int | None:
        """Of the core's process; None where it is this one."""
        return self._link.pid

    async def started(self) -> Started:
        """Wait until the core is ready.  Raises what stopped its start."""
        return await self._started

    async def add(self, inputs: Sequence[EngineInput], accepted: Callable[[], None]) -> None:
        """Queue all or none.  Raises InputError, OverloadedError, EngineDeadError.

        accepted: called once the core has them, before their first outputs are handed over;
        whoever waits for `add` goes on later, perhaps after these.
        """
        number = next(self._numbers)
        self._accepted[number] = accepted
        try:
            await self._ask(number, Add(number=number, inputs=tuple(inputs)))
        finally:
            del self._accepted[number]

    async def call(self, method: str, **arguments: Any) -> Any:
        """A method of `server.METHODS`.  Raises what it raises, and EngineDeadError."""
        number = next(self._numbers)
        return await self._ask(number, Call(number=number, method=method, arguments=arguments))

    def abort(self, request_ids: Sequence[str]) -> None:
        """End requests; their ends come with the outputs."""
        if request_ids and self.dead is None:
            self._link.send(Abort(request_ids=tuple(request_ids)))

    async def stop(self, *, drain: bool) -> None:
        """Tell the core to end, and wait until it has; one that hangs is made to.  drain: after it
        has served all, however long that takes."""
        self._closing = True
        if self.dead is None:
            self._link.send(Stop(drain=drain))
        try:
            async with asyncio.timeout(None if drain else KILL_AFTER):
                await self._ended.wait()
        except TimeoutError:
            self.give_up(closed())

    def give_up(self, error: EngineDeadError) -> None:
        """Take the core for dead, although its end was not seen, and make it end."""
        self._link.kill()
        self._die(error)

    def ended(self) -> EngineDeadError | None:
        """How the core has ended, which `dead` may tell a moment later."""
        return self._link.ended()

    def close(self) -> None:
        """End the core by whatever means; waits for it.  May be called twice."""
        self._closing = True
        self._link.end()
        self._reader.join()
        self._link.close()

    async def _ask(self, number: int, request: Add | Call) -> Any:
        if self.dead is not None:
            raise self.dead.with_traceback(None)
        future = self._calls[number] = self._loop.create_future()
        self._link.send(request)
        try:
            return await future
        finally:
            self._calls.pop(number, None)

    # The reader's thread: decoding is off the loop.

    def _read(self) -> None:
        while True:
            try:
                answers = self._link.receive(POLL_SECONDS)
            except (EOFError, EngineDeadError) as error:
                self._tell(self._die, error)
                return
            except Exception as error:  # a message that cannot be understood
                self._tell(self._die, error)
                return
            for answer in answers:
                self._tell(self._handle, answer, _size(answer))
            if any(isinstance(answer, Died) for answer in answers):
                return

    def _tell(self, what: Callable[[Any], None], argument: object, size: int = 1) -> None:
        """Have the loop do it.  size: how much that is, see AT_ONCE.

        A loop that is busy is woken once: each time is a byte in the pipe through which signals
        come too, and a signal that finds it full is lost.
        """
        self._news.append((what, argument, size))
        if self._woken:
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._hear)
        except RuntimeError:  # the loop was closed before the engine
            return

    # On the loop.

    def _hear(self) -> None:
        self._woken = False  # first: what comes from now on wakes it again
        left = AT_ONCE
        try:
            while self._news and left > 0:
                what, argument, size = self._news.popleft()
                left -= size
                what(argument)
        finally:
            # The others are heard, too, where one raised, of which the loop tells.
            if self._news and not self._woken:
                self._woken = True
                self._loop.call_soon(self._hear)

    def _handle(self, answer: Answer) -> None:
        self.signs += 1
        self.busy = answer.busy if isinstance(answer, Beat) else 0.0
        match answer:
            case Outputs():
                self._on_outputs(answer.outputs)
            case Reply():
                self._reply(answer)
            case Started():
                if not self._started.done():
                    self._started.set_result(answer)
            case Died():
                self._die(answer.error.error())
            case Beat():
                pass

    def _reply(self, reply: Reply) -> None:
        future = self._calls.get(reply.number)
        if future is None or future.done():
            return
        if reply.error is not None:
            future.set_exception(reply.error.error())
        else:
            if reply.number in self._accepted:
                self._accepted[reply.number]()
            future.set_result(reply.value)

    def _die(self, error: BaseException) -> None:
        """Nothing more will come: whoever waits is told."""
        if self.dead is not None:
            return
        dead = self._as_death(error)
        self.dead = dead
        # What stopped a start is told as it is; a running engine can only be dead.
        if not self._started.done():
            self._started.set_exception(dead)
            self._started.exception()  # nobody may be waiting for it
        for future in self._calls.values():
            if not future.done():
                future.set_exception(dead)
        self._ended.set()
        if isinstance(dead, EngineDeadError):
            self._on_death(dead)

    def _as_death(self, error: BaseException) -> FrameworkError:
        if self._closing:
            return closed()
        if isinstance(error, FrameworkError):
            return error
        return EngineDeadError(
            "the engine core sends nothing more",
            found=f"{type(error).__name__}: {error}",
            mend="start the engine anew",
        )


def _size(answer: Answer) -> int:
    if not isinstance(answer, Outputs):
        return 1
    step = answer.outputs
    scores = [step.logprobs, *(part.logprobs for part in step.prompt_logprobs)]
    return 1 + len(step.token_ids) + sum(len(one.ids) for one in scores if one is not None)


def closed() -> EngineDeadError:
    """What happens to requests of an engine that is told to end."""
    return EngineDeadError("the engine is closed", mend="make a new engine")
