"""The suite of kind `executor`: all that a runner must do, and how it treats its own runners."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from framework.contracts.model_runner import ModelRunner, RunnerContext
from framework.contracts.step import CachePlan, LateInputs, RunnerInfo, StepPlan, StepResult, Ticket
from framework.errors import ModelError, PluginError, SelectionError
from framework.plugins.policy import DENY_VARIABLE, Policy
from framework.plugins.records import Record
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance.cases import expect, expect_raises
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.model_runner import RunnerClauses
from framework.testing.scripted import ScriptedRunner

RUNNER, BROKEN = "conformance_runner", "conformance_broken"


class Recorder(ScriptedRunner):
    """A scripted runner that notes what it is told.  made: all of them, until they are cleared.
    calls: (method, step id) in their order.  given: the plan and the late inputs of each step."""

    made: ClassVar[list[Recorder]] = []

    def __init__(self, options: Any = None) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.given: list[tuple[StepPlan, LateInputs]] = []
        self._submitted: dict[int, StepPlan] = {}
        self.made.append(self)

    def load(self, context: RunnerContext) -> RunnerInfo:
        self.calls.append(("load", 0))
        return super().load(context)

    def bind(self, plan: CachePlan) -> None:
        self.calls.append(("bind", 0))
        super().bind(plan)

    def submit(self, plan: StepPlan) -> Ticket:
        self.calls.append(("submit", plan.step_id))
        self._submitted[plan.step_id] = plan
        return super().submit(plan)

    def finish(self, ticket: Ticket, late: LateInputs) -> StepResult:
        self.calls.append(("finish", ticket.step_id))
        self.given.append((self._submitted[ticket.step_id], late))
        return super().finish(ticket, late)

    def close(self) -> None:
        self.calls.append(("close", 0))
        super().close()


class Broken(Recorder):
    """Cannot load."""

    def load(self, context: RunnerContext) -> RunnerInfo:
        super().load(context)
        raise ModelError("the weights are damaged", mend="fetch them again")


class Runners(PluginRegistry):
    """What is installed, and the runners of the kit.  names: the candidates, best first.
    policy: what the operator allows, by default all."""

    def __init__(self, *names: str, policy: Policy | None = None) -> None:
        super().__init__(policy=policy or Policy())
        self.names = names
        for name, cls in ((RUNNER, Recorder), (BROKEN, Broken)):
            self.register("model_runner", name, cls, "framework")

    def candidates(self, kind: str) -> list[Record]:
        if kind != "model_runner":
            return super().candidates(kind)
        return [self.find(kind, name) for name in self.names]


class ExecutorSuite(RunnerClauses):
    """Its runners are scripted ones of the kit.  An executor that makes them in processes of
    their own overrides `ranks`, which otherwise sees those of this process."""

    kind = "executor"
    ordinary = ("the_chosen_runner_is_made",)

    def choices(self) -> dict[str, str]:
        return {"model_runner": RUNNER}

    def context(self) -> RunnerContext:
        return self.in_registry(Runners(), self.choices())

    def in_registry(self, registry: PluginRegistry, choices: Mapping[str, str]) -> RunnerContext:
        """What the executor loads, with another registry and other choices."""
        return dataclasses.replace(super().context(), registry=registry, choices=choices)

    def ranks(self) -> list[Recorder]:
        """The runners that were made since `forget`."""
        return list(Recorder.made)

    def forget(self) -> None:
        """Begin to count anew."""
        Recorder.made.clear()

    @clause("EXEC-001", "it makes the runner that the operator chose", of=("load",))
    def the_chosen_runner_is_made(self) -> None:
        self.forget()
        self.load()
        expect(self.ranks(), f"model_runner={RUNNER} was chosen and not made")

    @clause("EXEC-002", "a runner that does not exist is an error that names it", of=("load",))
    def unknown_runners_are_named(self) -> None:
        executor: ModelRunner = self.new()
        name = "no_such_runner"
        try:
            executor.load(self.in_registry(Runners(), {"model_runner": name}))
        except PluginError as error:
            expect(name in str(error), "the error does not name the runner", found=error)
            return
        expect(False, f"model_runner={name} is chosen and does not exist", expected="PluginError")

    @clause("EXEC-003", "without a choice it takes the best candidate", of=("load",))
    def the_best_candidate_is_taken(self) -> None:
        self.forget()
        executor: ModelRunner = self.new()
        executor.load(self.in_registry(Runners(RUNNER, BROKEN), {}))
        made = {type(rank) for rank in self.ranks()}
        expect(made == {Recorder}, "another runner than the best", expected=RUNNER, found=made)

    @clause("EXEC-004", "without a candidate it says so", of=("load",))
    def no_candidate_is_an_error(self) -> None:
        executor: ModelRunner = self.new()
        with expect_raises(SelectionError, "loading where no model runner is installed"):
            executor.load(self.in_registry(Runners(), {}))

    @clause("EXEC-009", "a runner that a rule keeps out is named, and so is the rule", of=("load",))
    def denied_runners_are_named(self) -> None:
        """An operator who has denied it would otherwise install it again."""
        rule = f"model_runner:{RUNNER}"
        registry = Runners(policy=Policy.from_env({DENY_VARIABLE: rule}))
        for choices in ({}, {"model_runner": RUNNER}):
            executor: ModelRunner = self.new()
            try:
                executor.load(self.in_registry(registry, choices))
            except PluginError as error:
                said = RUNNER in str(error) and DENY_VARIABLE in str(error)
                expect(said, "runner and rule are not named", expected=rule, found=error)
                continue
            expect(False, f"{DENY_VARIABLE}={rule}, and it loads", expected="PluginError")

    @clause(
        "EXEC-005",
        "every rank gets every call once, steps in their order",
        of=("load", "bind", "submit", "finish"),
    )
    def calls_are_fanned_out(self) -> None:
        for case in self.cases(1):
            self.forget()
            driver = self.driver()
            prompt = self.prompt(case, 6)
            driver.admit(0, prompt, self.sampling())
            driver.run((0, 6))
            driver.generate(0, 3)
            wanted = [("load", 0), ("bind", 0)]
            for step in range(1, driver.step + 1):
                wanted += [("submit", step), ("finish", step)]
            expect(self.ranks(), "no rank was made")
            for rank in self.ranks():
                expect(
                    rank.calls == wanted, "a rank misses calls", expected=wanted, found=rank.calls
                )

    @clause("EXEC-008", "every rank gets what a step brings late", of=("submit", "finish"))
    def late_inputs_are_passed_on(self) -> None:
        """Masks and what participants attach: a rank without them computes other tokens."""
        for case in self.cases(1):
            self.forget()
            driver = self.driver()
            driver.admit(0, self.prompt(case, 6), self.sampling())
            words = -(-self.info.vocab_size // 32)
            mask = case.rng.integers(1, 1 << 32, (1, words), dtype=np.uint32)
            late = LateInputs(
                bitmask=mask,
                bitmask_rows=np.zeros(1, np.int32),
                covered=np.zeros(1, np.int32),
                attachments={"who": b"what"},
            )
            driver.run((0, 6), late=late, attachments={"who": b"early"})
            expect(self.ranks(), "no rank was made")
            for rank in self.ranks():
                plan, found = rank.given[-1]
                early = dict(plan.attachments)
                expect(early == {"who": b"early"}, "attachments of a plan are lost", found=early)
                late_ones = dict(found.attachments)
                expect(late_ones == {"who": b"what"}, "late attachments are lost", found=late_ones)
                for name in ("bitmask", "bitmask_rows", "covered"):
                    mine, theirs = getattr(late, name), getattr(found, name)
                    same = theirs is not None and np.array_equal(mine, theirs)
                    expect(same, f"late {name} is another", expected=mine, found=theirs)

    @clause("EXEC-006", "what it tells of the model holds for each of its ranks", of=("load",))
    def facts_are_merged(self) -> None:
        self.forget()
        _, info = self.load()
        for rank in self.ranks():
            own = rank.info()
            expect(info.layers.keys() <= own.layers.keys(), "layers that no rank has")
            for name in ("bytes_free", "max_loop_depth"):
                mine, most = getattr(info, name), getattr(own, name)
                expect(mine <= most, f"{name}: more than a rank has", expected=most, found=mine)
            lacking = sorted(info.features - own.features)
            expect(not lacking, "features that a rank lacks", found=lacking)
            same = info.vocab_size == own.vocab_size
            expect(same, "vocab_size of another model", found=info.vocab_size)

    @clause("EXEC-007", "close closes each rank, also after a load that failed", of=("close",))
    def ranks_are_closed(self) -> None:
        for name in (RUNNER, BROKEN):
            self.forget()
            executor: ModelRunner = self.new()
            try:
                executor.load(self.in_registry(Runners(), {"model_runner": name}))
                expect(name == RUNNER, "an error of a rank's load is lost", expected="ModelError")
            except ModelError:
                expect(name == BROKEN, "a rank that can load is not loaded")
            executor.close()
            open_ranks = [rank for rank in self.ranks() if ("close", 0) not in rank.calls]
            expect(not open_ranks, f"ranks of {name} are not closed", found=len(open_ranks))
