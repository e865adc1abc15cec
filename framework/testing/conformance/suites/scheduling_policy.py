"""The suite of kind `scheduling_policy`: the policy alone, then in a running engine."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np

from framework.core.policies import keeps_account
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.suites.policy_parts import (
    TENANTS,
    check_keys,
    check_same,
    copy,
    random_requests,
    renumbered,
    take,
    watched,
)
from framework.testing.conformance.workload import Clock, Workload
from framework.testing.harness import Harness

HOUR = 3600.0


class SchedulingPolicySuite(Suite):
    """fixed_keys: the class says `keys_are_fixed`.  account: it overrides `served`.
    keys_budget: seconds that the keys of 10,000 requests may take.
    patience: steps of an hour each, after which a request must have run that others,
    who come later, would go before.
    """

    kind = "scheduling_policy"
    ordinary = ("a_running_engine_is_served",)
    capabilities = ("fixed_keys", "account")
    keys_budget: ClassVar[float] = 0.05
    patience: ClassVar[int] = 200

    def declared(self) -> frozenset[str]:
        policy = self.new()
        found = {"fixed_keys": policy.keys_are_fixed, "account": keeps_account(policy)}
        return frozenset(name for name, there in found.items() if there)

    @clause("POL-001", "keys are finite float64, one per request", of=("keys",))
    def keys_are_numbers(self) -> None:
        policy = self.new()
        for case in self.cases(20):
            count = int(case.rng.integers(1, 60))
            case.note(requests=count)
            check_keys(policy.keys(random_requests(case.rng, count)), count)

    @clause("POL-002", "they are finite whatever the numbers of a request", of=("keys",))
    def keys_are_finite(self) -> None:
        policy = self.new()
        for case in self.cases(20):
            count = int(case.rng.integers(1, 20))
            case.note(requests=count, numbers="wide")
            check_keys(policy.keys(random_requests(case.rng, count, wide=True)), count)

    @clause("POL-003", "nobody has no keys", of=("keys",))
    def nobody_has_no_keys(self) -> None:
        check_keys(self.new().keys(random_requests(np.random.default_rng(0), 0)), 0)

    @clause("POL-004", "a key belongs to its request, whatever the order of them", of=("keys",))
    def keys_go_with_their_requests(self) -> None:
        for case in self.cases(20):
            requests = random_requests(case.rng, 30)
            order = case.rng.permutation(30)
            first = check_keys(self.new().keys(copy(requests)), 30)
            second = check_keys(self.new().keys(take(requests, order)), 30)
            expect(
                np.array_equal(first[order], second),
                "the keys change with the order in which the requests are given",
                expected=first[order],
                found=second,
            )

    @clause("POL-005", "what it is given stays as it was", of=("keys",))
    def arguments_are_not_changed(self) -> None:
        policy = self.new()
        for case in self.cases(5):
            requests = random_requests(case.rng, 20)
            before = copy(requests)
            policy.keys(requests)
            check_same(before, requests, "keys")

    @clause(
        "POL-006",
        "keys that move do so with time and what is served, and not with being asked for",
        lacks="fixed_keys",
        of=("keys",),
    )
    def asking_is_no_event(self) -> None:
        policy = self.new()
        for case in self.cases(10):
            requests = random_requests(case.rng, 20)
            first = check_keys(policy.keys(copy(requests)), 20)
            second = check_keys(policy.keys(copy(requests)), 20)
            expect(
                np.array_equal(first, second),
                "asked twice for the keys of the same arrays, it answers differently",
                expected=first,
                found=second,
            )

    @clause(
        "POL-007",
        "a fixed key is the same at any time, in any company and however far the request is",
        needs="fixed_keys",
        of=("keys",),
    )
    def fixed_keys_are_fixed(self) -> None:
        policy = self.new()
        for case in self.cases(10):
            requests = random_requests(case.rng, 20)
            arrived = dataclasses.replace(
                requests, known=requests.prompt, computed=np.zeros(20, np.int64)
            )
            first = check_keys(policy.keys(copy(arrived)), 20)
            some = case.rng.permutation(20)[: int(case.rng.integers(1, 20))]
            later = dataclasses.replace(take(requests, some), now=requests.now + 1e4)
            second = check_keys(policy.keys(later), len(some))
            expect(
                np.array_equal(first[some], second),
                "the key of a request changes, although keys_are_fixed",
                expected=first[some],
                found=second,
            )

    @clause(
        "POL-008",
        "without an account, keys depend on the arrays and on nothing that was before",
        lacks="account",
        of=("keys",),
    )
    def nothing_is_remembered(self) -> None:
        policy = self.new()
        for case in self.cases(10):
            policy.keys(random_requests(case.rng, 20))
            requests = random_requests(case.rng, 20)
            first = check_keys(self.new().keys(copy(requests)), 20)
            second = check_keys(policy.keys(copy(requests)), 20)
            expect(
                np.array_equal(first, second),
                "the keys depend on what it was asked before",
                expected=f"{first}, as of a new instance",
                found=second,
            )

    @clause(
        "POL-009",
        "an account takes whatever a step computes, also nothing, and changes no array",
        needs="account",
        of=("served",),
    )
    def accounts_take_every_step(self) -> None:
        for case in self.cases(10):
            policy = self.new()
            for _ in range(10):
                count = int(case.rng.integers(0, 20))
                case.note(requests=count)
                requests, tokens = self._served(case, count)
                before, counted = copy(requests), tokens.copy()
                policy.served(requests, tokens)
                check_same(before, requests, "served")
                expect(np.array_equal(counted, tokens), "served changed tokens")
                check_keys(policy.keys(random_requests(case.rng, 20)), 20)

    def _served(self, case: Case, count: int, tenants: int = len(TENANTS)) -> tuple[Any, Any]:
        requests = random_requests(case.rng, count, tenants=tenants)
        return requests, case.rng.integers(1, 2048, count)

    @clause("POL-010", "tenants may come later than the policy", of=("keys", "served"))
    def tenants_may_come_later(self) -> None:
        for case in self.cases(5):
            policy = self.new()
            for tenants in (1, 2, len(TENANTS)):
                case.note(tenants=tenants)
                check_keys(policy.keys(random_requests(case.rng, 9, tenants=tenants)), 9)
                policy.served(*self._served(case, 9, tenants))

    @clause("POL-011", "two instances share nothing", of=("keys", "served"))
    def instances_share_nothing(self) -> None:
        for case in self.cases(5):
            first, second = self.new(), self.new()
            asked = random_requests(case.rng, 20)
            before = check_keys(first.keys(copy(asked)), 20)
            for _ in range(5):
                second.keys(random_requests(case.rng, 20))
                second.served(*self._served(case, 20))
            after = check_keys(first.keys(copy(asked)), 20)
            expect(
                np.array_equal(before, after),
                "what one instance was told changes the keys of another",
                expected=before,
                found=after,
            )

    @clause("POL-012", "the keys of 10,000 requests are quick", must=False, of=("keys",))
    def keys_are_quick(self) -> None:
        policy, seconds = self.new(), []
        requests = random_requests(np.random.default_rng(0), 10_000)
        for _ in range(4):
            started = self.now()
            policy.keys(requests)
            seconds.append(self.now() - started)
        what = "the keys take long; use array operations"
        self.expect_quick(min(seconds), self.keys_budget, what, " for 10,000 requests")

    @clause("POL-013", "a tenant goes by its name, whatever its index", of=("keys", "served"))
    def tenants_go_by_name(self) -> None:
        for case in self.cases(5):
            stays, moves = self.new(), self.new()
            requests, tokens = self._served(case, 20)
            stays.served(copy(requests), tokens.copy())
            moves.served(requests, tokens)
            asked = random_requests(case.rng, 20)  # when those have left
            first = check_keys(stays.keys(copy(asked)), 20)
            second = check_keys(moves.keys(renumbered(case.rng, asked)), 20)
            expect(
                np.array_equal(first, second),
                "the keys change with the indices of the tenants",
                expected=first,
                found=second,
            )

    # In a running engine

    def _work(self, case: Case, depth: int, pages: int, **more: Any) -> tuple[Any, Harness]:
        policy = watched(self.new())
        case.note(depth=depth, pages=pages, **more)
        one = Harness(
            policy=policy,
            runner={"num_pages": pages},
            clock=Clock(),
            max_num_batched_tokens=int(case.rng.integers(4, 32)),
            max_num_seqs=4,
            max_model_len=36,
            loop_depth=depth,
            **more,
        )
        Workload(rng=case.rng, engine=one, requests=16).run()
        policy.check()
        return policy, one

    @clause(
        "POL-020",
        "in a running engine it serves waiting and running requests, and all of them end",
        of=("keys", "served"),
    )
    def a_running_engine_is_served(self) -> None:
        for case in self.cases(4):
            self._work(case, 1 + case.index % 2, 80)

    @clause(
        "POL-021",
        "it takes requests back that were preempted, with the tokens they have meanwhile",
        of=("keys", "served"),
    )
    def preempted_requests_are_taken(self) -> None:
        for case in self.cases(6):
            self._work(case, 1 + case.index % 2, 12, long_prefill_threshold="auto")

    @clause(
        "POL-022",
        "whoever waits comes first in the end, however many others keep coming",
        must=False,
        of=("keys", "served"),
    )
    def nobody_waits_for_ever(self) -> None:
        for case in self.cases(2):
            own = ("", "victim")[case.index]
            case.note(tenant=own)
            clock = Clock()
            one = Harness(policy=self.new(), clock=clock, max_num_seqs=2, max_num_batched_tokens=48)
            for number in range(4):
                one.add(f"before {number}", [number], 3)
            one.add("victim", [1] * 40, 3, priority=5, tenant=own)
            for step in range(self.patience):
                while one.core.stats.waiting < 9:
                    one.add(f"{step} {len(one.answers)}", [2, 3], 3, tenant="")
                one.step()
                clock.now += HOUR
                if one.answers["victim"].tokens:
                    break
            expect(
                one.answers["victim"].tokens,
                "a long request of low priority never ran, while short ones kept coming",
                expected=f"its first token within {self.patience} steps of an hour each",
                found="none",
            )
