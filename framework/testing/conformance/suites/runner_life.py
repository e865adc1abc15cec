"""Clauses about the life of a runner: load, bind, the order of steps, control, close."""

from __future__ import annotations

from framework.contracts.kv_cache_spec import KVCacheSpec
from framework.contracts.model_runner import ModelRunner
from framework.contracts.step import NOTHING_LATE, RunnerInfo, StepPlan, empty_i32
from framework.errors import FrameworkError, IntegrityError, UnsupportedError
from framework.testing.conformance.cases import Case, expect, expect_raises
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.place import bridge_to, changes, keeping_defaults
from framework.testing.conformance.suites.runner_parts import RunnerSuite
from framework.testing.driver import Driver

STEP = ("submit", "finish")


def empty_plan(step_id: int) -> StepPlan:
    """A plan without rows."""
    nobody = empty_i32()
    return StepPlan(
        step_id=step_id,
        slots=nobody,
        generations=nobody,
        num_new=nobody,
        computed=nobody,
        wants_logits=nobody.astype(bool),
    )


class RunnerLife(RunnerSuite):
    """See `RunnerSuite`."""

    @clause("RUN-001", "load tells of the model what the core must know", of=("load",))
    def load_tells_the_model(self) -> None:
        info = self.load()[1]
        expect(isinstance(info, RunnerInfo), "no RunnerInfo", found=type(info).__name__)
        specs = [isinstance(spec, KVCacheSpec) for spec in info.layers.values()]
        expect(specs and all(specs), "layers are no specs by name", found=info.layers)
        sizes = [isinstance(size, int) and size > 0 for size in info.page_tokens]
        expect(sizes and all(sizes), "page_tokens are no sizes", found=info.page_tokens)
        for name, least in (("bytes_free", 0), ("vocab_size", 1), ("max_loop_depth", 1)):
            value = getattr(info, name)
            expect(isinstance(value, int) and value >= least, f"{name} is no count", found=value)
        longest = info.max_model_len
        expect(longest is None or longest > 0, "max_model_len is no length", found=longest)
        for name in ("features", "control_ops"):
            expect(isinstance(getattr(info, name), frozenset), f"{name} is no frozenset")

    @clause("RUN-002", "loaded again, it is the same model", of=("load",))
    def load_is_repeated(self) -> None:
        first, again = self.load()[1], self.load()[1]
        for name in ("layers", "page_tokens", "vocab_size", "features", "max_loop_depth"):
            expect(
                getattr(first, name) == getattr(again, name),
                f"two instances differ in {name}",
                expected=getattr(first, name),
                found=getattr(again, name),
            )

    @clause("RUN-003", "a step before bind is refused", of=("bind", *STEP))
    def steps_come_after_bind(self) -> None:
        runner, _ = self.load()
        with expect_raises(FrameworkError, "a step before bind"):
            runner.finish(runner.submit(empty_plan(1)), NOTHING_LATE)

    @clause(
        "RUN-004",
        "close may come at any time, and twice",
        of=("close",),
        explains=("ALL-022",),
    )
    def close_may_come_twice(self) -> None:
        for stage in ("made", "loaded", "bound", "in flight"):
            runner: ModelRunner
            if stage == "made":
                runner = self.new()
            elif stage == "loaded":
                runner = self.load()[0]
            else:
                driver = self.driver()
                runner = driver.runner
                if stage == "in flight":
                    runner.submit(driver.plan())
            runner.close()
            runner.close()

    @clause("RUN-005", "a closed runner computes nothing", of=("close", *STEP))
    def closed_runners_refuse(self) -> None:
        driver = self.driver()
        driver.runner.close()
        with expect_raises(FrameworkError, "a step after close"):
            driver.runner.finish(driver.runner.submit(driver.plan()), NOTHING_LATE)

    @clause("RUN-018", "it changes no default of tensors", of=("load", *STEP))
    def defaults_stay(self) -> None:
        """But the number of threads, which a platform sets, and random numbers."""
        bridge = bridge_to(self.target.registry, self.tensor_api)
        for case in self.cases(1):
            with keeping_defaults(bridge) as before:
                driver = self.driver()
                driver.admit(0, self.prompt(case, 6), self.sampling())
                driver.run((0, 6))
                changed = changes(before, bridge.defaults(), but=("threads", "random numbers"))
            expect(not changed, "defaults of the process change", found="; ".join(changed))

    @clause("RUN-006", "an operation that is not declared is refused", of=("control",))
    def unknown_operations_are_refused(self) -> None:
        driver = self.driver()
        for op in ("no_such_operation", "", "close", "__class__"):
            if op not in self.info.control_ops:
                with expect_raises(UnsupportedError, f"control({op!r})"):
                    driver.runner.control(op, {})
        self._serves(driver)

    @clause("RUN-007", "health is told in any state of work", needs="health", of=("control",))
    def health_is_told(self) -> None:
        driver = self.driver()
        for _ in range(3):
            answer = driver.runner.control("health", {})
            expect(hasattr(answer, "keys"), "health is no mapping", found=answer)
            driver.run()

    @clause("RUN-008", "health that is not declared is refused", lacks="health", of=("control",))
    def health_is_refused(self) -> None:
        with expect_raises(UnsupportedError, "control('health')"):
            self.driver().runner.control("health", {})

    @clause("RUN-014", "one that slept computes as if just bound", needs="sleep", of=("control",))
    def sleep_changes_no_answer(self) -> None:
        for case in self.cases(2):
            driver = self.driver()
            gone = {"sleep", "wake"} - self.info.control_ops
            expect(not gone, "of sleep and wake one is declared alone", found=sorted(gone))
            prompts = [self.prompt(case), self.prompt(case)]
            for generation, levels in enumerate(((1,), (2,), (1, 2)), 1):
                case.note(levels=levels)
                for slot, prompt in enumerate(prompts):
                    driver.admit(slot, prompt, self.sampling(), generation=generation)
                driver.run(*((slot, len(prompt)) for slot, prompt in enumerate(prompts)))
                found: list[int] = []
                own = driver.requests[0]
                found += own.tokens[len(prompts[0]) :] + driver.generate(0, 3)
                self.same((found, ()), (self.alone(prompts[0], 4)[0], ()), f"awake {generation}")
                # One leaves before the sleep, the other by it: the next plan tells of both.
                driver.release(0)
                for level in levels:
                    driver.runner.control("sleep", {"level": level})
                driver.release(1)
                for _ in range(2):
                    driver.runner.control("wake", {})

    @clause("RUN-015", "one that sleeps computes nothing", needs="sleep", of=("control",))
    def sleepers_compute_nothing(self) -> None:
        for level in (1, 2):
            driver = self.driver()
            driver.runner.control("sleep", {"level": level})
            with expect_raises(FrameworkError, f"a step in sleep of level {level}"):
                driver.runner.finish(driver.runner.submit(driver.plan()), NOTHING_LATE)

    @clause("RUN-016", "sleep that is not declared is refused", lacks="sleep", of=("control",))
    def sleep_is_refused(self) -> None:
        driver = self.driver()
        for op, arguments in (("sleep", {"level": 1}), ("wake", {})):
            with expect_raises(UnsupportedError, f"control({op!r})"):
                driver.runner.control(op, arguments)

    def _serves(self, driver: Driver) -> None:
        """It still does what it did before."""
        driver.admit(7, [1, 2, 3], self.sampling())
        found = self.tokens(driver.run((7, 3)), 0)
        true, _ = self.alone([1, 2, 3], 1)
        expect(found == true, "after a refusal it computes otherwise", expected=true, found=found)

    # Steps in flight

    @clause("RUN-010", "one step in flight too many is refused, and harms nothing", of=STEP)
    def steps_in_flight_are_limited(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            prompt = self.prompt(case)
            driver.admit(0, prompt, self.sampling())
            plans = [driver.plan((0, len(prompt)))]
            plans += [driver.plan((0, 1)) for _ in range(self.info.max_loop_depth)]
            tickets = [driver.runner.submit(plan) for plan in plans[:-1]]
            with expect_raises(IntegrityError, f"{len(plans)} steps in flight"):
                driver.runner.submit(plans[-1])
            found: list[int] = []
            for ticket in tickets:
                found += self.tokens(driver.runner.finish(ticket, NOTHING_LATE), 0)
            found += self.tokens(
                driver.runner.finish(driver.runner.submit(plans[-1]), NOTHING_LATE), 0
            )
            self.same((found, ()), self.alone(prompt, len(found)), "after a refused step")

    @clause("RUN-011", "steps are finished in their order", needs="two_in_flight", of=("finish",))
    def steps_are_finished_in_order(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            prompt = self.prompt(case)
            driver.admit(0, prompt, self.sampling())
            first, second = driver.plan((0, len(prompt))), driver.plan((0, 1))
            tickets = [driver.runner.submit(plan) for plan in (first, second)]
            with expect_raises(IntegrityError, "finishing the second step first"):
                driver.runner.finish(tickets[1], NOTHING_LATE)
            results = [driver.runner.finish(ticket, NOTHING_LATE) for ticket in tickets]
            found = [token for result in results for token in self.tokens(result, 0)]
            self.same((found, ()), self.alone(prompt, 2), "after a refused order")

    @clause(
        "RUN-012",
        "a second step before the first has ended is refused",
        lacks="two_in_flight",
        of=("submit",),
    )
    def a_second_step_is_refused(self) -> None:
        driver = self.driver()
        driver.runner.submit(driver.plan())
        with expect_raises(IntegrityError, "a second step in flight"):
            driver.runner.submit(driver.plan())

    @clause(
        "RUN-013",
        "a step planned while one is in flight finds that one's tokens",
        needs="two_in_flight",
        of=STEP,
    )
    def two_steps_in_flight_are_as_one(self) -> None:
        for case in self.cases(2):
            driver = self.driver()
            prompts = [self.prompt(case), self.prompt(case)]
            for slot, prompt in enumerate(prompts):
                driver.admit(slot, prompt, self.sampling())
            flight = [driver.plan(*((slot, len(p)) for slot, p in enumerate(prompts)))]
            tickets = [driver.runner.submit(flight[0])]
            results = []
            for _ in range(3):
                flight.append(driver.plan((0, 1), (1, 1)))
                tickets.append(driver.runner.submit(flight[-1]))
                results.append(driver.runner.finish(tickets[-2], NOTHING_LATE))
            results.append(driver.runner.finish(tickets[-1], NOTHING_LATE))
            for row, prompt in enumerate(prompts):
                found = [token for result in results for token in self.tokens(result, row)]
                scores = [score for result in results for score in self.scores(result, row)]
                self.same((found, scores), self.alone(prompt, 4), "two steps in flight")

    def refuses(self, case: Case, what: str, driver: Driver, plan: StepPlan) -> None:
        """Raise Violation unless the plan is refused and the runner serves as before."""
        case.note(uses=what)
        with expect_raises(UnsupportedError, f"a plan that uses {what}, which is not declared"):
            driver.runner.finish(driver.runner.submit(plan), NOTHING_LATE)
        driver.step -= 1  # it has never been
        self._serves(driver)
