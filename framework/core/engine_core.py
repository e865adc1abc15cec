"""The loop: plan, submit, finish, update."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from framework.contracts.messages import EngineOutputs, EngineStats, Finished
from framework.core.kv.groups import plan_cache
from framework.core.kv.manager import KVManager
from framework.core.kv.managers import FullAttentionManager
from framework.core.participants import ParticipantHub
from framework.core.policies import checked
from framework.core.request import Request, Status
from framework.core.scheduler import Scheduler
from framework.core.slots import SlotTable
from framework.core.state import CoreState
from framework.core.update import Updater
from framework.errors import ConfigError, EngineDeadError, InputError, IntegrityError

if TYPE_CHECKING:
    from framework.contracts.kv_cache_spec import CacheManagerType
    from framework.contracts.messages import EngineInput
    from framework.contracts.model_runner import ModelRunner
    from framework.contracts.participant import SchedulerParticipant
    from framework.contracts.scheduling_policy import SchedulingPolicy
    from framework.contracts.step import RunnerInfo, StepPlan, Ticket
    from framework.core.config import CoreConfig

IDLE_SECONDS = 0.0005


class EngineCore:
    """Scheduler, cache and a loaded runner.  All calls come from one thread.

    runner: loaded, not yet bound.  participants: name -> instance.  managers: cache manager
    types, one per class of spec.  Raises ConfigError if model, cache and settings do not
    fit together.
    """

    def __init__(
        self,
        runner: ModelRunner,
        info: RunnerInfo,
        config: CoreConfig,
        *,
        policy: SchedulingPolicy,
        participants: Mapping[str, SchedulerParticipant] | None = None,
        managers: Sequence[CacheManagerType] = (FullAttentionManager(),),
    ) -> None:
        if config.loop_depth > info.max_loop_depth:
            raise ConfigError(
                "the runner cannot keep so many steps in flight",
                expected=f"loop_depth at most {info.max_loop_depth}",
                found=config.loop_depth,
                mend="lower loop_depth",
            )
        plan, self.max_model_len = plan_cache(info, config)
        if not config.enable_chunked_prefill:
            _check_whole_prompts(config, self.max_model_len)
        self.cache_plan = plan
        self.vocab_size = info.vocab_size
        self._features = info.features
        self._depth = config.loop_depth
        kv = KVManager(
            plan,
            config.max_num_seqs,
            config.identity,
            managers,
            config.enable_prefix_caching,
        )
        hub = ParticipantHub(participants or {}, info.vocab_size)
        slots = SlotTable(config.max_num_seqs, self.max_model_len + config.max_drafts + 1)
        self._state = CoreState(config, checked(policy), slots, kv, hub)
        self._scheduler = Scheduler(self._state)
        self._updater = Updater(self._state)
        self._flight: deque[tuple[StepPlan, Ticket]] = deque()
        self._arrivals = 0
        self._tenants: dict[str, int] = {}
        self._dead: BaseException | None = None
        self._runner = runner
        runner.bind(plan)

    # Requests

    def add(self, entry: EngineInput) -> None:
        """Queue a request.  Raises InputError if it can never be served."""
        self._check_alive()
        self._check_servable(entry)
        state = self._state
        self._arrivals += 1
        tenant = self._tenants.setdefault(entry.tenant, len(self._tenants))
        now = time.monotonic()
        request = Request(entry, self._arrivals, now, tenant)
        request.attendants = state.hub.attendants(entry.extras)
        state.requests[entry.request_id] = request
        state.queue.add(request, now)
        state.queue.watch_deadline(request)

    def _check_servable(self, entry: EngineInput) -> None:
        if entry.request_id in self._state.requests:
            raise InputError(f"request id {entry.request_id!r} is in use", parameter="request_id")
        count = len(entry.tokens)
        if not 1 <= count <= entry.max_total <= self.max_model_len:
            raise InputError(
                "the request cannot fit",
                parameter="prompt",
                expected=f"1 <= prompt <= prompt + output <= {self.max_model_len} tokens",
                found=f"a prompt of {count}, {entry.max_total} altogether",
                mend="shorten the prompt or lower max_tokens",
            )
        if entry.tokens.min() < 0 or entry.tokens.max() >= self.vocab_size:
            raise InputError(
                "the prompt holds token ids outside the vocabulary",
                parameter="prompt",
                expected=f"ids in [0, {self.vocab_size})",
                found=f"from {entry.tokens.min()} to {entry.tokens.max()}",
            )
        missing = _needed_features(entry) - self._features
        if missing:
            raise InputError(
                "the model runner does not serve what the request needs",
                parameter=min(missing),
                expected=f"one of the declared features {sorted(self._features)}",
                found=sorted(missing),
                mend="leave it out, or choose a runner that declares it",
            )

    def abort(self, request_ids: Iterable[str]) -> None:
        """End requests; unknown ids are ignored (they may just have finished)."""
        for name in request_ids:
            request = self._state.requests.get(name)
            if request is not None:
                self._state.end(request, "abort")

    def has_work(self) -> bool:
        """Whether `step` has anything to do or to tell."""
        return bool(self._state.requests or self._flight or self._state.ended)

    # Steps

    def step(self) -> EngineOutputs:
        """Advance by one finished step.  Without anything to compute it returns at once."""
        self._check_alive()
        try:
            return self._step()
        except Exception as error:
            self._dead = error
            raise EngineDeadError(
                "the engine stopped after a fault in a step",
                found=f"{type(error).__name__}: {error}",
                mend="report this; start the engine anew",
            ) from error

    def _step(self) -> EngineOutputs:
        while len(self._flight) < self._depth:
            self._end_failed()
            plan = self._scheduler.schedule()
            if plan is None:
                break
            plan = self._state.hub.attach(plan, self._live(plan))
            self._flight.append((plan, self._runner.submit(plan)))
        if not self._flight:
            return self._idle()
        plan, ticket = self._flight.popleft()
        late = self._state.hub.late(plan, self._live(plan))
        self._end_failed()  # rows without the late inputs that they need are dropped
        return self._updater.update(plan, self._runner.finish(ticket, late))

    def _live(self, plan: StepPlan) -> list[Request | None]:
        """The request of each row; None where it has left since."""
        table = self._state.slots
        live = table.generation[plan.slots] == plan.generations
        return [
            table.requests[slot] if alive else None
            for slot, alive in zip(plan.slots.tolist(), live.tolist(), strict=True)
        ]

    def _end_failed(self) -> None:
        """End the requests that a participant failed."""
        for request, sentence in self._state.hub.take_failed():
            if request.status is not Status.FINISHED:
                self._state.end(request, "error", sentence)

    def _idle(self) -> EngineOutputs:
        """Nothing can be computed now: report what ended, or wait for a participant."""
        state = self._state
        ended, state.ended = state.ended, []
        if not ended and state.requests:
            if state.queue.num_in_line and not state.fence.num_held:
                raise IntegrityError(
                    "requests wait and nothing runs, although pages are free",
                    found=f"{state.queue.num_in_line} in line, {state.stats()}",
                )
            time.sleep(IDLE_SECONDS)
        return EngineOutputs(
            step_id=state.done_step,
            request_ids=tuple(end.request.id for end in ended),
            token_offsets=np.zeros(len(ended) + 1, np.int32),
            finished=tuple(
                Finished(row=row, reason=end.reason, error=end.error)
                for row, end in enumerate(ended)
            ),
            cached=np.array([end.request.cached or 0 for end in ended], np.int32),
            stats=state.stats(),
        )

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise EngineDeadError(
                "the engine has stopped",
                found=f"{type(self._dead).__name__}: {self._dead}",
                mend="start the engine anew",
            )

    # Administration

    @property
    def stats(self) -> EngineStats:
        return self._state.stats()

    def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes.  Requests that run keep their pages and lose no token."""
        self._state.kv.clear()
        return True

    def check_integrity(self) -> None:
        """Raises IntegrityError if any count is wrong."""
        self._state.check_integrity()

    def close(self) -> None:
        """Close the runner.  May be called twice."""
        self._runner.close()


def _check_whole_prompts(config: CoreConfig, max_model_len: int) -> None:
    if config.max_num_batched_tokens < max_model_len:
        raise ConfigError(
            "without chunked prefill a step must be able to hold the longest prompt",
            expected=f"max_num_batched_tokens >= max_model_len ({max_model_len})",
            found=config.max_num_batched_tokens,
            mend="raise max_num_batched_tokens, lower max_model_len, or allow chunked prefill",
        )


def _needed_features(entry: EngineInput) -> frozenset[str]:
    """What a request needs of the runner beyond tokens."""
    sampling = entry.sampling
    needs = {
        "logprobs": sampling.logprobs is not None,
        "prompt_logprobs": sampling.prompt_logprobs is not None,
        "structured_outputs": sampling.structured_outputs is not None,
        "adapters": entry.adapter is not None,
        "payloads": bool(entry.payloads),
    }
    return frozenset(name for name, needed in needs.items() if needed)
