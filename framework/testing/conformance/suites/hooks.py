"""The suite of kind `hooks`: marks and shapes, then the events of whole lives of an engine."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, NamedTuple

import pluggy

from framework.contracts.hooks import PROJECT, HookSpecs
from framework.plugins.near import did_you_mean
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.hooks_parts import frozen, request, traced

EVENTS = (
    "engine_started",
    "request_added",
    "request_first_token",
    "request_finished",
    "engine_closed",
)
Reason = Literal["stop", "length", "abort", "error"]
REASONS: tuple[Reason, ...] = ("stop", "length", "abort", "error")


class Event(NamedTuple):
    """One call of a hook, with keywords as specified."""

    name: str
    arguments: dict[str, Any]


class HooksSuite(Suite):
    """call_budget: seconds that a hook may take, in the median.
    bytes_per_request: that may be left of a request that has ended, on average."""

    kind = "hooks"
    ordinary = ("lives_are_taken",)
    call_budget: ClassVar[float] = 0.002
    bytes_per_request: ClassVar[float] = 16.0

    def _manager(self) -> pluggy.PluginManager:
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(HookSpecs)
        return manager

    def _methods(self) -> Iterator[tuple[str, Callable[..., object], dict[str, Any] | None]]:
        """(name, method, options of its mark or None) of what the class has."""
        instance, manager = self.new(), self._manager()
        for name in dir(instance):
            method = getattr(instance, name, None)
            if not name.startswith("_") and inspect.isroutine(method):
                options = manager.parse_hookimpl_opts(instance, name)
                yield name, method, None if options is None else dict(options)

    @clause("HOOK-001", "each marked method has the name of a hook", of=EVENTS)
    def hooks_are_known(self) -> None:
        for name, _, options in self._methods():
            expect(
                options is None or name in EVENTS,
                f"no hook has the name {name!r}{did_you_mean(name, EVENTS)}",
                expected=f"one of {', '.join(EVENTS)}",
                found=name,
            )

    @clause("HOOK-002", "each method with the name of a hook is marked", of=EVENTS)
    def hooks_are_marked(self) -> None:
        for name, method, options in self._methods():
            inherited = getattr(method, "__func__", None) is getattr(HookSpecs, name, None)
            expect(
                name not in EVENTS or options is not None or inherited,
                f"{name} lacks its mark and would never be called",
                expected="@hookimpl of framework.contracts.hooks",
            )

    @clause("HOOK-003", "hooks take the arguments of their specification, or fewer", of=EVENTS)
    def arguments_fit(self) -> None:
        for name, method, options in self._methods():
            if options is None or name not in EVENTS:
                continue
            given = set(inspect.signature(getattr(HookSpecs, name)).parameters) - {"self"}
            found = [p.name for p in inspect.signature(method).parameters.values()]
            strange = [each for each in found if each not in given]
            expect(
                not strange,
                f"{name} takes arguments that are not given: {', '.join(strange)}",
                expected=f"some of {', '.join(sorted(given)) or 'none'}",
                found=", ".join(found),
            )

    @clause("HOOK-004", "no hook wraps those of other plugins", of=EVENTS)
    def hooks_stand_alone(self) -> None:
        for name, _, options in self._methods():
            wraps = options is not None and (options["wrapper"] or options["hookwrapper"])
            expect(not wraps, f"{name} is a wrapper", expected="a plain @hookimpl")

    @clause("HOOK-005", "there is a hook at all", must=False, of=EVENTS)
    def there_is_a_hook(self) -> None:
        marked = [name for name, _, options in self._methods() if options is not None]
        expect(marked, "no method is marked with @hookimpl, so that nothing is ever called")

    # Lives

    @contextmanager
    def hooks(self) -> Iterator[Callable[[Event], list[object]]]:
        """Calls the plugin's hooks for an event, as the front end does; answers what they do."""
        manager = self._manager()
        manager.register(self.new())

        def call(event: Event) -> list[object]:
            caller: pluggy.HookCaller = getattr(manager.hook, event.name)
            answers: list[object] = caller(**event.arguments)
            return answers

        yield call

    def life(self, case: Case, requests: int, *, early_ends: float = 0.0) -> Iterator[Event]:
        """Events of an engine in which so many requests come, run beside each other and end; a
        share of them before their first token."""
        yield Event("engine_started", {"notes": ("attention: sdpa", "max_model_len 128")})
        open_ids: list[str] = []
        for number in range(requests):
            entry = request(case, number)
            yield Event("request_added", {"request": entry})
            open_ids.append(entry.request_id)
            while len(open_ids) > int(case.rng.integers(0, 4)):
                name = open_ids.pop(int(case.rng.integers(0, len(open_ids))))
                yield from self._end(case, name, bool(case.rng.random() < early_ends))
        for name in open_ids:
            yield from self._end(case, name, False)
        yield Event("engine_closed", {})

    @staticmethod
    def _end(case: Case, name: str, early: bool) -> Iterator[Event]:
        count = 0 if early else int(case.rng.integers(1, 9))
        if count:
            yield Event("request_first_token", {"request_id": name, "waited": 0.0})
        reason = str(case.rng.choice(["abort", "error"] if early else REASONS))
        ended = {"request_id": name, "reason": reason, "num_output_tokens": count}
        yield Event("request_finished", ended)

    @clause("HOOK-010", "the events of a whole life are taken", of=EVENTS)
    def lives_are_taken(self) -> None:
        for case in self.cases(4):
            with self.hooks() as call:
                for event in self.life(case, int(case.rng.integers(1, 30))):
                    case.note(event=event.name)
                    call(event)

    @clause("HOOK-011", "an engine that serves nobody is taken", of=EVENTS)
    def idle_lives_are_taken(self) -> None:
        for case in self.cases(1):
            with self.hooks() as call:
                for event in self.life(case, 0):
                    call(event)

    @clause(
        "HOOK-012",
        "requests that end before their first token are taken",
        of=("request_first_token", "request_finished"),
    )
    def early_ends_are_taken(self) -> None:
        for case in self.cases(4):
            with self.hooks() as call:
                for event in self.life(case, 20, early_ends=0.5):
                    case.note(event=event.name)
                    call(event)

    @clause("HOOK-013", "what it is given stays as it was", of=("request_added",))
    def requests_are_not_changed(self) -> None:
        for case in self.cases(3):
            with self.hooks() as call:
                for event in self.life(case, 10):
                    before = {key: frozen(value) for key, value in event.arguments.items()}
                    call(event)
                    for key, value in event.arguments.items():
                        expect(
                            frozen(value) == before[key],
                            f"{event.name} changed its {key}",
                            expected=before[key],
                            found=frozen(value),
                        )

    @clause("HOOK-014", "hooks are plain functions that answer nothing", of=EVENTS)
    def hooks_answer_nothing(self) -> None:
        for case in self.cases(1):
            with self.hooks() as call:
                for event in self.life(case, 5):
                    answers = [answer for answer in call(event) if answer is not None]
                    for answer in answers:
                        if inspect.iscoroutine(answer):
                            answer.close()
                    expect(
                        not answers,
                        f"{event.name} answers something, for which nobody waits",
                        expected="None, of a function that is not async",
                        found=answers,
                    )

    @clause("HOOK-017", "two instances share nothing", of=EVENTS)
    def instances_share_nothing(self) -> None:
        """Two engines in one process call their requests alike."""
        for case in self.cases(2):
            with self.hooks() as one, self.hooks() as other:
                for event in self.life(case, 12):
                    one(event)
                    other(event)

    @clause("HOOK-015", "hooks return at once", must=False, of=EVENTS)
    def hooks_are_quick(self) -> None:
        seconds: dict[str, list[float]] = {}
        for case in self.cases(1):
            with self.hooks() as call:
                for event in self.life(case, 40):
                    started = self.now()
                    call(event)
                    taken = self.now() - started
                    seconds.setdefault(event.name, []).append(taken)
        for name, times in seconds.items():
            self.expect_quick(
                statistics.median(times),
                self.call_budget,
                f"{name} is slow, and the front end waits for it",
                "; slow work belongs in a thread",
            )

    @clause(
        "HOOK-016",
        "nothing is kept of requests that have ended",
        must=False,
        of=("request_added", "request_first_token", "request_finished"),
    )
    def ended_requests_are_forgotten(self) -> None:
        for case in self.cases(1):
            with self.hooks() as call, traced() as used:
                sizes = []
                for event in self.life(case, 700):
                    call(event)
                    number = event.arguments.get("request_id", "").partition("-")[0]
                    if event.name == "request_finished" and number in ("100", "600"):
                        sizes.append(used())
            grown = (sizes[1] - sizes[0]) / 500
            expect(
                grown <= self.bytes_per_request,
                "memory grows with every request that has ended",
                expected=f"at most {self.bytes_per_request:g} bytes for each",
                found=f"{grown:.0f} bytes",
            )
