"""The loop: plan, submit, finish, update."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from framework.contracts.step import NOTHING_LATE
from framework.core.checks import check_cache, check_told
from framework.core.kv.checked import checked_managers
from framework.core.kv.groups import plan_cache
from framework.core.kv.manager import KVManager
from framework.core.kv.managers import BUILT_IN
from framework.core.operated import Operated
from framework.core.participants import ParticipantHub
from framework.core.patience import Patience
from framework.core.pinning import pin
from framework.core.policies import checked
from framework.core.profiling import Profiling
from framework.core.request import Request
from framework.core.request_checks import check_id, check_room, check_servable
from framework.core.results import finish, submit
from framework.core.scheduler import Scheduler
from framework.core.sleep import Sleeper, send_back
from framework.core.slots import SlotTable
from framework.core.state import CoreState
from framework.core.update import Updater
from framework.errors import EngineDeadError
from framework.plugins.blame import blaming, told

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.messages import EngineInput, EngineOutputs, EngineStats, KVEvent
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.participant import SchedulerParticipant
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.contracts.step import LateInputs, RunnerInfo, StepPlan, Ticket
    from framework.core.config import CoreConfig

IDLE_SECONDS = 0.0005


class EngineCore:
    """Scheduler, cache and a loaded runner.  All calls come from one thread.

    runner: loaded, not yet bound.  participants: name -> instance.  managers: cache manager
    types, one per class of spec; None: the built-in ones.  clock: seconds, rising.
    Raises ConfigError if model, cache and settings do not fit together.
    """

    def __init__(
        self,
        runner: ModelRunner,
        info: RunnerInfo,
        config: CoreConfig,
        *,
        policy: SchedulingPolicy,
        participants: Mapping[str, SchedulerParticipant] | None = None,
        managers: Sequence[CacheManagerType] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_told(runner, info, config)
        if info.whole_prompts:
            config = replace(config, enable_chunked_prefill=False, enable_prefix_caching=False)
        given = tuple(make() for make in BUILT_IN) if managers is None else managers
        managers = checked_managers(given)
        plan, self.max_model_len = plan_cache(info, config, managers)
        check_cache(plan, config, managers, self.max_model_len)
        self.cache_plan = plan
        self.info = info
        self.vocab_size = info.vocab_size
        self._depth = config.loop_depth
        kv = KVManager(plan, config, managers)
        hub = ParticipantHub(participants or {}, info.vocab_size, clock)
        slots = SlotTable(config.max_num_seqs, self.max_model_len + config.max_drafts + 1)
        self._clock = clock
        self._state = CoreState(config, checked(policy), slots, kv, hub)
        self._scheduler = Scheduler(self._state, clock)
        self._updater = Updater(self._state, clock, runner, info.vocab_size)
        self._patience = Patience(self._state, clock, config.participant_timeout)
        self._flight: deque[tuple[StepPlan, Ticket]] = deque()
        self._arrivals = self._pins = 0
        self._dead: BaseException | None = None
        self._runner = runner
        self.profiling = Profiling(runner, info.control_ops)
        self.operated = Operated(participants or {})
        self._sleeper = Sleeper(self._state, runner, info.control_ops, clock)
        self._landed: deque[EngineOutputs] = deque()
        with blaming(runner, "making the cache"):
            runner.bind(plan)

    # Requests

    def add(self, entry: EngineInput) -> None:
        """Queue a request.  Raises InputError if it can never be served, OverloadedError if the
        queue is full."""
        self._check_alive()
        state = self._state
        check_servable(entry, self.max_model_len, self.info)
        check_id(entry.request_id, state, self._landed)
        state.kv.encoder.check(entry.encoder_tokens, self.max_model_len)
        check_room(state.queue, state.config, len(entry.tokens), self._clock)
        now, self._arrivals = self._clock(), self._arrivals + 1
        request = Request(entry, self._arrivals, now, state.tenants.enter(entry.tenant))
        request.attendants = state.hub.attendants(entry.extras)
        state.requests[entry.request_id] = request
        state.watched += bool(request.attendants)
        state.queue.add(request, now)
        state.queue.watch(request)

    def abort(self, request_ids: Iterable[str]) -> None:
        """End requests; unknown ids are ignored (they may just have finished)."""
        for name in request_ids:
            request = self._state.requests.get(name)
            if request is not None:
                self._state.end(request, "abort")

    def has_work(self) -> bool:
        """Whether `step` has anything to do or to tell."""
        return bool(self._state.requests or self._flight or self._state.ended or self._landed)

    # Steps

    def step(self) -> EngineOutputs:
        """Advance by one finished step.  Without anything to compute it returns at once."""
        self._check_alive()
        try:
            return self._step()
        except Exception as error:
            raise self._died(error) from error

    def _died(self, error: Exception) -> EngineDeadError:
        """A fault in a step ends the engine."""
        self._dead = error
        return EngineDeadError(
            "the engine stopped after a fault in a step",
            found=told(error),
            mend="report this; start the engine anew",
        )

    def _step(self) -> EngineOutputs:
        if self._landed:
            return self._landed.popleft()
        while len(self._flight) < self._depth:
            self._state.end_failed()
            plan = self._scheduler.schedule()
            if plan is None:
                break
            if self._state.hub.any:
                self._patience.went_on()
            if self._state.watched:
                plan = self._state.hub.attach(plan, self._state.concerned(plan))
            self._flight.append((plan, submit(self._runner, plan)))
        if not self._flight:
            return self._idle()
        return self._finish()

    def _finish(self) -> EngineOutputs:
        """The oldest step in flight."""
        plan, ticket = self._flight.popleft()
        result = finish(self._runner, plan, ticket, self._late(plan), self.vocab_size)
        return self._updater.update(plan, result)

    def _land(self) -> None:
        """Finish all that is in flight; `step` tells what it brought."""
        try:
            while self._flight:
                self._landed.append(self._finish())
        except Exception as error:
            raise self._died(error) from error

    def _late(self, plan: StepPlan) -> LateInputs:
        """What participants know only now; rows without what they need are dropped."""
        if not self._state.watched:
            return NOTHING_LATE
        late = self._state.hub.late(plan, self._updater.live(plan)[1])
        self._state.end_failed()
        return late

    def _idle(self) -> EngineOutputs:
        """Nothing can be computed now: report what ended, or wait for a participant."""
        state = self._state
        self._state.end_failed()
        if state.hub.any and not state.ended:
            self._patience.idle()
        if not state.ended and state.requests:
            state.check_progress()
            time.sleep(IDLE_SECONDS)
        return self._updater.ended()

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise EngineDeadError(
                "the engine has stopped", found=told(self._dead), mend="start the engine anew"
            )

    # Administration

    @property
    def stats(self) -> EngineStats:
        return self._state.stats()

    def pause(self) -> None:
        """Plan no more steps.  Those in flight end as usual; no token is lost."""
        self._state.pausing = True

    def resume(self) -> None:
        """Go on where `pause` stopped; one that sleeps sleeps on."""
        self._state.pausing = False

    @property
    def paused(self) -> bool:
        return self._state.paused

    def sleep(self, level: int = 1) -> None:
        """Give back the memory of the cache, with level 2 that of the weights too, until `wake_up`.

        Cached prefixes are forgotten, pinned ones too.  Requests wait meanwhile, those that ran
        with their tokens: none is lost, and each goes on with the tokens it would have had.
        Raises as `Sleeper.sleep`.
        """
        self._check_alive()
        self._sleeper.sleep(level, self._land)

    def wake_up(self) -> None:
        """Take the memory again; if that fails it sleeps on, and may be asked again."""
        self._check_alive()
        self._sleeper.wake()

    @property
    def sleeping(self) -> int:
        """The level of sleep; 0 is awake."""
        return self._state.asleep

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes.  Requests that run keep their pages and lose no token; what
        is pinned stays in memory but is not found any more."""
        self._state.kv.prefix.clear()
        return True

    def weights_changed(self) -> None:
        """The runner computes with other weights from the next step on.

        No page that was computed before is hit or named any more.  Requests that run go back to
        the line, with their tokens and their place in it, and are computed again; what steps in
        flight bring is dropped.  So no token is lost or repeated, and each later one is that of
        the new weights alone.  Pinned pages stay in memory but are not found any more.
        """
        state = self._state
        send_back(state, self._clock)
        for request in state.requests.values():
            request.forget_hashes()
        state.kv.prefix.new_epoch()

    def pin_prefix(
        self, tokens: Sequence[int], *, salt: str | None = None, adapter: int | None = None
    ) -> tuple[int, int]:
        """Keep what the cache holds of this prefix until `unpin_prefix`.

        Returns (key, tokens pinned); fewer than asked for when not all of it is cached.
        Raises InputError if the longest request would not fit beside what is pinned.
        """
        self._pins += 1
        self._pages_changed()
        pinned = pin(
            self._state.kv,
            self._pins,
            tokens,
            salt=salt,
            adapter=adapter,
            longest=self.max_model_len,
        )
        return self._pins, pinned

    def unpin_prefix(self, key: int) -> bool:
        """Let a pinned prefix go; False if the key is unknown."""
        self._pages_changed()
        return self._state.kv.pins.unpin(key)

    def _pages_changed(self) -> None:
        """Not by a step: what steps tell of the pages must be counted anew."""
        if self._state.steady is not None:
            self._state.steady.forget_stats()

    def take_kv_events(self) -> list[KVEvent]:
        """Changes of the prefix cache since the last call (`enable_kv_events`), see `EventLog`."""
        return self._state.kv.prefix.take_events()

    def check_integrity(self) -> None:
        """Raises IntegrityError if any count is wrong."""
        self._state.check_integrity()

    def close(self) -> None:
        """Close participants and runner.  May be called twice."""
        self._state.hub.close()
        with blaming(self._runner, "being closed"):
            self._runner.close()
