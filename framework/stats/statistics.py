"""Counts what the engine does, from what the front end sees of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from framework.contracts.messages import EngineStats
from framework.contracts.stat_logger import Counter, Gauge, Metric, Snapshot
from framework.stats.buckets import TOKENS, Buckets
from framework.stats.plugins import plugin_metrics
from framework.stats.tenants import TenantUsage

if TYPE_CHECKING:
    from framework.contracts.messages import EngineInput, EngineOutputs
    from framework.engine.output_processor import Ended
    from framework.plugins.records import Record

REASONS = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class _Course:
    """Of a request that runs, in seconds of the clock.  last: of its newest token."""

    tenant: str
    prompt: int
    added: float
    first: float | None = None
    last: float = 0.0


class Statistics:
    """Counters and histograms of one engine.

    records: the plugins.  clock: seconds, rising.  cache: what the labels of cache_config_info
    say.  The engine's thread counts, other threads take snapshots.
    """

    def __init__(
        self,
        records: Callable[[], Iterable[Record]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cache: Mapping[str, str] = {}
        self._records, self._clock = records, clock
        self._lock = threading.Lock()
        self._started = clock()
        self._courses: dict[str, _Course] = {}
        self._stats = EngineStats()
        # What cores that died had counted: counters only rise.
        self._before = EngineStats()
        self._core_restarts = 0
        self._prompt = self._generated = 0
        self._tenants = TenantUsage()
        self._ended = dict.fromkeys(REASONS, 0)
        self._first_token = Buckets("time_to_first_token_seconds", "From arrival to first token.")
        self._between = Buckets("inter_token_latency_seconds", "Between two outputs of a request.")
        self._whole = Buckets("e2e_request_latency_seconds", "From arrival to end.")
        self._queue = Buckets("request_queue_time_seconds", "From arrival to the first slot.")
        self._prefill = Buckets("request_prefill_time_seconds", "From the slot to first token.")
        self._decode = Buckets("request_decode_time_seconds", "From first to last token.")
        self._step = Buckets("iteration_tokens_total", "Tokens computed in a step.", TOKENS)
        # The rows of the step before if it brought one token to each, its time, and whether
        # `_Course.last` has yet to hear of it.
        self._run: tuple[str, ...] = ()
        self._run_at = 0.0
        self._behind = False

    def added(self, entries: Iterable[EngineInput]) -> None:
        """Requests were accepted into the queue."""
        now = self._clock()
        with self._lock:
            for entry in entries:
                self._courses[entry.request_id] = _Course(entry.tenant, len(entry.tokens), now)

    def stepped(self, outputs: EngineOutputs) -> None:
        """A step has ended."""
        now = self._clock()
        ids = outputs.request_ids
        with self._lock:
            self._stats = outputs.stats
            if outputs.num_computed:
                self._step.add(outputs.num_computed)
            self._generated += len(outputs.token_ids)
            # With no more tokens computed than there are rows, no row can have got two.
            each = len(ids) == len(outputs.token_ids) == outputs.num_computed
            if each and ids == self._run:
                self._between.add(now - self._run_at, len(ids))
                self._behind = True
            else:
                self._catch_up()
                self._each(ids, outputs, now)
                self._run = ids if each else ()
            self._run_at = now

    def _each(self, ids: Sequence[str], outputs: EngineOutputs, now: float) -> None:
        offsets, waited = outputs.token_offsets.tolist(), outputs.waited.tolist()
        for row, request_id in enumerate(ids):
            course = self._courses.get(request_id)
            if course is None or offsets[row + 1] == offsets[row]:
                continue
            if course.first is None:
                course.first = now
                self._prompt += course.prompt
                self._first_token.add(now - course.added)
                self._queue.add(waited[row])
                self._prefill.add(max(now - course.added - waited[row], 0.0))
            else:
                self._between.add(now - course.last)
            course.last = now

    def _catch_up(self) -> None:
        """Write down when the requests of a run had their newest token."""
        if self._behind:
            for request_id in self._run:
                course = self._courses.get(request_id)
                if course is not None:
                    course.last = self._run_at
        self._behind = False

    def ended(self, ended: Sequence[Ended]) -> None:
        """Requests ended, for whatever reason."""
        if not ended:
            return
        now = self._clock()
        with self._lock:
            self._catch_up()
            for end in ended:
                self._ended[end.reason] += 1
                course = self._courses.pop(end.request_id, None)
                if course is not None:
                    self._whole.add(now - course.added)
                    whole = end.reason in ("stop", "length")  # without a token: pooled or scored
                    if whole and course.first is None:
                        self._prompt += course.prompt
                    prompt = course.prompt if whole or course.first is not None else 0
                    self._tenants.add(course.tenant, prompt, end.num_output_tokens)
                    if course.first is not None:
                        self._decode.add(course.last - course.first)

    def core_ended(self) -> None:
        """Nothing runs or waits any more.  Another core would count from nothing."""
        with self._lock:
            self._catch_up()
            self._before = _together(self._before, self._stats)
            self._stats, self._run = EngineStats(), ()

    def core_restarted(self) -> None:
        """Another core took the place of one that died."""
        with self._lock:
            self._core_restarts += 1

    def snapshot(self, *, final: bool = False) -> Snapshot:
        """All that was counted up to now; from any thread."""
        with self._lock:
            metrics = (*self._gauges(), *self._counters(), *self._histograms())
        return Snapshot(
            time=time.time(),
            uptime=self._clock() - self._started,
            metrics=(*metrics, *plugin_metrics(self._records())),
            final=final,
        )

    def _gauges(self) -> Iterator[Metric]:
        stats = self._stats
        usage = stats.pages_used / stats.pages_total if stats.pages_total else 0.0
        for name, help, value in (
            ("num_requests_running", "Requests that are computed.", stats.running),
            ("num_requests_waiting", "Requests that wait for a slot.", stats.waiting),
            ("kv_cache_usage_perc", "Pages in use; 1 is all.", usage),
        ):
            yield Gauge(name=name, help=help, value=value)
        yield Gauge(name="cache_config_info", help="The cache.", value=1, labels=self.cache)

    def _counters(self) -> Iterator[Metric]:
        stats = _together(self._before, self._stats)
        for name, help, value in (
            ("core_restarts", "Times that a core died and another began.", self._core_restarts),
            ("prefix_cache_queries", "Tokens looked for in the cache.", stats.prefix_queries),
            ("prefix_cache_hits", "Tokens found in the cache.", stats.prefix_hits),
            ("num_preemptions", "Times that a request lost its slot.", stats.preemptions),
            ("prompt_tokens", "Tokens of prompts that were computed.", self._prompt),
            ("generation_tokens", "Tokens that were generated.", self._generated),
        ):
            yield Counter(name=name, help=help, value=value)
        yield from _of_drafts(stats)
        for reason, value in self._ended.items():
            labels = {"finished_reason": reason}
            help = "Requests that ended, by reason."
            yield Counter(name="request_success", help=help, value=value, labels=labels)
        yield from self._tenants.read()

    def _histograms(self) -> Iterator[Metric]:
        for buckets in (
            self._first_token,
            self._between,
            self._whole,
            self._queue,
            self._prefill,
            self._decode,
            self._step,
        ):
            yield buckets.read()


def _of_drafts(stats: EngineStats) -> Iterator[Metric]:
    """Of speculation; none where there were no drafts."""
    if not stats.drafts:
        return
    prefix = "spec_decode_num_"
    for name, help, value in (
        ("drafts", "Times that drafts of a request were verified.", stats.drafted),
        ("draft_tokens", "Tokens that were proposed and verified.", stats.drafts),
        ("accepted_tokens", "Those of them that were accepted.", sum(stats.accepted)),
    ):
        yield Counter(name=prefix + name, help=help, value=value)
    help = "Accepted, by place among the drafts of a step."
    for place, value in enumerate(stats.accepted):
        labels = {"position": str(place)}
        name = f"{prefix}accepted_tokens_per_pos"
        yield Counter(name=name, help=help, value=value, labels=labels)


def _together(one: EngineStats, other: EngineStats) -> EngineStats:
    """Counters of both, as if one core had counted."""
    return EngineStats(
        prefix_queries=one.prefix_queries + other.prefix_queries,
        prefix_hits=one.prefix_hits + other.prefix_hits,
        preemptions=one.preemptions + other.preemptions,
        drafted=one.drafted + other.drafted,
        drafts=one.drafts + other.drafts,
        accepted=tuple(map(sum, zip_longest(one.accepted, other.accepted, fillvalue=0))),
    )
