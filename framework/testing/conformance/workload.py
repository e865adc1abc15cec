"""Random work for a running engine: requests that come, wait, are aborted and end."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from framework.testing.conformance.cases import expect
from framework.testing.harness import Harness
from framework.testing.scripts import expected_tokens


class Clock:
    """Seconds that pass only when told, and a little with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


@dataclass(kw_only=True)
class Workload:
    """Runs `requests` random requests in an engine, and checks what each of them gets.

    Prompts begin alike, so that prefixes are hit.  aborts: share of the requests that are
    aborted, in whatever state they are.  more: further arguments of each, from its number.
    may_fail: whether a request may end with this error; None: none may.  masked: names of those
    that may not have any token, so that nobody knows which they get.
    prompts, priorities and tenants are drawn from `rng`.
    """

    rng: np.random.Generator
    engine: Harness
    requests: int = 12
    longest: int = 24
    aborts: float = 0.2
    more: Callable[[int], dict[str, Any]] = lambda number: {}
    may_fail: Callable[[str, str], bool] | None = None
    masked: Set[str] = frozenset()
    most: int = 2000
    name: str = "r"
    prompts: dict[str, tuple[list[int], int]] = field(default_factory=dict)
    aborted: set[str] = field(default_factory=set)

    def run(self) -> Harness:
        """Add, step and abort in random order, until nothing is left."""
        for number in range(self.requests):
            self._add(number)
            for _ in range(int(self.rng.integers(0, 4))):
                self.engine.step()
            if self.rng.random() < self.aborts:
                name = str(self.rng.choice(sorted(self.prompts)))
                if self.engine.answers[name].reason is None:
                    self.aborted.add(name)
                self.engine.core.abort([name])
        self.engine.run(self.most)
        self.check()
        return self.engine

    def _add(self, number: int) -> None:
        rng, name = self.rng, f"{self.name}{number}"
        length, count = int(rng.integers(1, self.longest)), int(rng.integers(1, 10))
        prompt = [int(rng.integers(0, 3))] * length
        if rng.random() < 0.5:
            prompt[-1] = number + 3
        self.prompts[name] = prompt, count
        self.engine.add(
            name,
            prompt,
            count,
            **{
                "priority": int(rng.integers(-3, 4)),
                "tenant": str(int(rng.integers(0, 3))),
                **self.more(number),
            },
        )

    def check(self) -> None:
        """Each request ended as it should, with the tokens that it would get alone."""
        for name, (prompt, count) in self.prompts.items():
            answer = self.engine.answers[name]
            true = expected_tokens(prompt, count, self.engine.runner.vocab_size)
            got = answer.tokens
            if name in self.masked:
                true = [*got, *true[len(got) :]]
            expect(
                got == true[: len(got)],
                f"request {name} gets other tokens than it would get alone",
                expected=true,
                found=got,
            )
            if answer.reason == "length":
                expect(got == true, f"request {name} ended early", expected=true, found=got)
            elif answer.reason == "abort":
                expect(name in self.aborted, f"request {name} was aborted by nobody")
            else:
                fine = self.may_fail is not None and self.may_fail(name, answer.error or "")
                expect(fine, f"request {name} ended with {answer.reason!r}", found=answer.error)
