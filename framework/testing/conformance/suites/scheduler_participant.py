"""The suite of kind `scheduler_participant`: single calls, then runs in an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from framework.contracts.sampling import SamplingParams
from framework.errors import InputError, UnsupportedError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.held import where_text_is
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.odd_arguments import hostile
from framework.testing.conformance.suites.participant_adapters import FEATURES
from framework.testing.conformance.suites.participant_calls import VOCABULARY, ParticipantCalls
from framework.testing.conformance.suites.participant_parts import Witness
from framework.testing.conformance.workload import Workload
from framework.testing.harness import Harness

if TYPE_CHECKING:
    from framework.contracts.participant import SchedulerParticipant

EVERY = ("admit", "external_prefix", "limit", "attach", "late", "absorb", "release")

ENDED = "kit-4f1c9"
"""In the names of requests that are over."""


class SchedulerParticipantSuite(ParticipantCalls):
    """See `ParticipantCalls` for what a subclass may set."""

    @contextmanager
    def engine(
        self, case: Case, *, strict: bool = False, **changes: Any
    ) -> Iterator[tuple[Witness, Harness]]:
        """A harness in which the participant runs, looked at in every call."""
        witness = Witness(self.new(), self.now, strict=strict)
        options: dict[str, Any] = {
            "num_pages": 80,
            "max_num_batched_tokens": int(case.rng.integers(4, 32)),
            "max_num_seqs": 4,
            "max_model_len": 36,
            "loop_depth": 1 + case.index % 2,
            **changes,
        }
        case.note(**options)
        pages = options.pop("num_pages")
        one = Harness(
            participants={self.target.record.name: witness},
            runner={
                "num_pages": pages,
                "worker": witness.worker,
                "vocab_size": VOCABULARY,
                "features": FEATURES,
                "script": witness.script,
            },
            **options,
        )
        witness.runner = one.runner
        try:
            yield witness, one
        except AssertionError:
            witness.check()
            raise
        witness.check()
        expect(not witness.inside, f"never released: {sorted(witness.inside)}")

    @property
    def most_steps(self) -> int:
        """In which all requests of a workload have to end: one without anything to compute takes
        half a millisecond."""
        return int(self.patience * self.slowness * 1000)

    def work(self, case: Case, witness: Witness, one: Harness, **more: Any) -> Workload:
        """Random requests; half of them name the participant."""

        def own(number: int) -> dict[str, Any]:
            return self.fields(case, number // 2) if number % 2 == 0 else {}

        options = {"requests": 10, "may_fail": _refused(witness), "most": self.most_steps, **more}
        made = Workload(rng=case.rng, engine=one, more=own, masked=witness.masked, **options)
        made.run()
        served = [a for a in one.answers.values() if a.reason == "length"]
        expect(served, "no request was served; override `arguments` in a suite of your own")
        return made

    @clause(
        "PART-009",
        "one that attends all requests takes those that give it no arguments",
        needs="attends_all",
        of=("admit", "external_prefix", "limit", "release"),
    )
    def requests_without_arguments_are_taken(self) -> None:
        for case in self.cases(4):
            with self.engine(case) as (witness, one):
                work = Workload(
                    rng=case.rng,
                    engine=one,
                    requests=8,
                    may_fail=_refused(witness),
                    most=self.most_steps,
                )
                work.run()

    @clause(
        "PART-010",
        "requests that it does not attend get their tokens, whatever it does with others",
        lacks="attends_all",
        of=EVERY,
    )
    def strangers_are_left_alone(self) -> None:
        for case in self.cases(2):
            with self.engine(case) as (witness, one):
                made = self.work(case, witness, one, aborts=0.0)
                strangers = [name for name in made.prompts if int(name[1:]) % 2]
                ended = {name: one.answers[name].reason for name in strangers}
                expect(
                    set(ended.values()) <= {"length"},
                    "a request that does not name the participant does not end as it would alone",
                    found=ended,
                )

    @clause(
        "PART-020",
        "in a running engine it answers every call as it must, and all requests end",
        of=EVERY,
    )
    def a_running_engine_is_served(self) -> None:
        for case in self.cases(2):
            with self.engine(case, loop_depth=1) as (witness, one):
                self.work(case, witness, one)

    @clause(
        "PART-021",
        "with two steps in flight, a step's limit and attach come before the one's before late "
        "and absorb",
        of=EVERY,
    )
    def two_steps_in_flight_are_served(self) -> None:
        for case in self.cases(2):
            with self.engine(case, loop_depth=2) as (witness, one):
                self.work(case, witness, one)

    @clause(
        "PART-022",
        "preempted requests come again from the start, and aborted ones go, in whatever state",
        of=EVERY,
    )
    def preemptions_and_aborts_are_taken(self) -> None:
        for case in self.cases(4):
            with self.engine(case, num_pages=11) as (witness, one):
                self.work(case, witness, one, requests=14, aborts=0.3)

    @clause(
        "PART-023",
        "what requests took is given back: round after round runs as the first did",
        of=("admit", "release"),
    )
    def nothing_leaks(self) -> None:
        for case in self.cases(1):
            with self.engine(case) as (witness, one):
                for turn in range(4):
                    self.work(case, witness, one, name=f"{turn}.", aborts=0.3)

    @clause(
        "PART-014",
        "nothing is kept of requests that have ended, not even their names",
        of=("admit", "release"),
    )
    def ended_requests_are_forgotten(self) -> None:
        for case in self.cases(1):
            with self.engine(case) as (witness, one):
                self.work(case, witness, one, name=f"{ENDED}-", aborts=0.3)
                kept = where_text_is(ENDED, [witness.participant])
                expect(not kept, "it holds what is over", found=kept)

    @clause("PART-024", "it changes nothing that it is shown", of=EVERY)
    def nothing_is_changed(self) -> None:
        for case in self.cases(2):
            with self.engine(case, strict=True) as (witness, one):
                self.work(case, witness, one)

    @clause("PART-025", "its calls return at once", must=False, of=EVERY)
    def calls_are_quick(self) -> None:
        for case in self.cases(1):
            with self.engine(case) as (witness, one):
                self.work(case, witness, one)
            name, seconds = witness.slowest()
            what = f"{name} is slow; slow work belongs in a thread or a process of its own"
            self.expect_quick(seconds, self.call_budget, what)

    @clause("PART-026", "pages that it holds are let go", of=("release",))
    def holds_end(self) -> None:
        for case in self.cases(2):
            with self.engine(case) as (witness, one):
                self.work(case, witness, one, aborts=0.6)

    @clause(
        "PART-011",
        "arguments that it cannot use are refused, whatever they are",
        of=("front_half", "admit", "external_prefix"),
    )
    def odd_arguments_are_refused(self) -> None:
        for case in self.cases(2):
            taken = list(self._taken(self.asked(case)))
            with self.engine(case) as (witness, one):
                work = Workload(
                    rng=case.rng,
                    engine=one,
                    requests=len(taken),
                    masked=witness.masked,
                    most=self.most_steps,
                )
                work.more = _extras(taken)
                work.may_fail = _refused_as_asked(one)
                work.run()

    def _taken(self, asked: Mapping[str, Any]) -> Iterator[dict[str, bytes]]:
        """What the core gets of odd requests that are not refused before."""
        name = self.target.record.name
        known = {**asked, "extra_args": {name: {}, **asked.get("extra_args", {})}}
        for field, value in known.items():
            for odd in hostile((value,)) if field != "extra_args" else hostile((value[name],)):
                given = {name: odd} if field == "extra_args" else odd
                try:
                    yield self.extras(SamplingParams(max_tokens=8, **{**known, field: given}))
                except (InputError, UnsupportedError):
                    continue

    @clause(
        "PART-012",
        "it can be closed twice, and without a start",
        of=("start", "close"),
        explains=("ALL-022",),
    )
    def closing_is_harmless(self) -> None:
        started, never = self.new(), cast("SchedulerParticipant", Suite.make(self))
        for participant in (started, never):
            participant.close()
            participant.close()


def _extras(given: Sequence[dict[str, bytes]]) -> Callable[[int], dict[str, Any]]:
    return lambda number: {"extras": given[number]}


def _refused_as_asked(one: Harness) -> Callable[[str, str], bool]:
    return lambda name, error: one.answers[name].refused


def _refused(witness: Witness) -> Callable[[str, str], bool]:
    return lambda name, error: name in witness.refused
