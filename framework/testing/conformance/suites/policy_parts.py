"""What the suite of scheduling policies is made of: random requests, and a look at every call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from framework.contracts.scheduling_policy import RequestArrays, SchedulingPolicy
from framework.core.policies import keeps_account
from framework.testing.conformance.cases import expect
from framework.testing.conformance.outcomes import Violation

TENANTS = ("", "a", "b", "a tenant with a long name", "e")
ARRAYS = ("arrival", "arrived_at", "priority", "tenant", "prompt", "known", "limit", "computed")


def random_requests(
    rng: np.random.Generator, count: int, *, tenants: int = len(TENANTS), wide: bool = False
) -> RequestArrays:
    """`count` requests in any order, waiting and running ones.  wide: with numbers at the ends
    of what they may be."""
    arrival = rng.choice(np.arange(1, 10 * count + 2), count, replace=False).astype(np.int64)
    prompt = rng.integers(1, 1_000_000 if wide else 500, count)
    known = prompt + rng.integers(0, 1_000_000 if wide else 50, count)
    size = 2**31 if wide else 4
    return RequestArrays(
        arrival=arrival,
        arrived_at=(arrival * (1e5 if wide else 0.25)).astype(np.float64),
        priority=rng.integers(-size, size, count),
        tenant=rng.integers(0, tenants, count),
        prompt=prompt,
        known=known,
        limit=known + rng.integers(1, 2**31 if wide else 500, count),
        computed=np.where(rng.random(count) < 0.5, 0, known - 1),
        now=float(10 * count + 2) * (1e5 if wide else 0.25),
        tenant_names=TENANTS[:tenants],
    )


def take(requests: RequestArrays, rows: npt.NDArray[np.intp] | list[int]) -> RequestArrays:
    """Some of the requests, in this order, as copies."""
    own = {name: getattr(requests, name)[rows] for name in ARRAYS}
    return dataclasses.replace(requests, **own)


def copy(requests: RequestArrays) -> RequestArrays:
    return take(requests, list(range(len(requests))))


def renumbered(rng: np.random.Generator, requests: RequestArrays) -> RequestArrays:
    """The same requests of the same tenants, as copies; the tenants have other indices."""
    place = rng.permutation(len(requests.tenant_names))
    names = [""] * len(place)
    for old, new in enumerate(place):
        names[new] = requests.tenant_names[old]
    own = dataclasses.replace(copy(requests), tenant_names=tuple(names))
    return dataclasses.replace(own, tenant=place[requests.tenant].astype(np.int64))


def check_keys(answer: object, count: int) -> npt.NDArray[np.float64]:
    """Raise Violation unless `answer` is what `keys` must answer for `count` requests."""
    expect(isinstance(answer, np.ndarray), "keys are no array", found=type(answer).__name__)
    assert isinstance(answer, np.ndarray)
    expect(answer.shape == (count,), "not one key each", expected=(count,), found=answer.shape)
    expect(
        answer.dtype == np.float64, "keys of another type", expected="float64", found=answer.dtype
    )
    expect(np.isfinite(answer).all(), "keys that are not finite", found=answer)
    return answer


def check_same(before: RequestArrays, after: RequestArrays, method: str) -> None:
    """Raise Violation unless the arrays are as they were."""
    for name in ARRAYS:
        old, new = getattr(before, name), getattr(after, name)
        expect(np.array_equal(old, new), f"{method} changed {name}", expected=old, found=new)


class Watched(SchedulingPolicy):
    """Passes calls on, and keeps the first thing that is wrong with an answer: the engine goes
    on without a policy that fails.  running, preempted: calls about such requests."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        super().__init__()
        self.policy, self.plugin_id = policy, policy.plugin_id
        self.keys_are_fixed = policy.keys_are_fixed  # type: ignore[misc]
        self.problem: BaseException | None = None
        self.running = self.preempted = 0

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        self.running += int((requests.computed > 0).any())
        waiting = requests.computed == 0
        self.preempted += int((waiting & (requests.known > requests.prompt)).any())
        with self._watch(requests, "keys"):
            return check_keys(self.policy.keys(requests), len(requests))

    @contextmanager
    def _watch(self, requests: RequestArrays, method: str) -> Iterator[None]:
        before = copy(requests)
        try:
            yield
            check_same(before, requests, method)
        except Exception as error:
            self.problem = self.problem or error
            raise

    def check(self) -> None:
        """Raise Violation if a call went wrong."""
        if isinstance(self.problem, Violation):
            raise self.problem
        if self.problem is not None:
            what = f"{type(self.problem).__name__}: {self.problem}"
            raise Violation(f"the policy failed in a running engine: {what}") from self.problem


class WatchedWithAccount(Watched):
    """One that is told what was planned."""

    def served(self, requests: RequestArrays, tokens: npt.NDArray[np.int64]) -> None:
        with self._watch(requests, "served"):
            self.policy.served(requests, tokens)


def watched(policy: SchedulingPolicy) -> Watched:
    return WatchedWithAccount(policy) if keeps_account(policy) else Watched(policy)
