"""Clauses about what a step computes, whatever is beside it and however it was cut."""

from __future__ import annotations

import numpy as np

from framework.contracts.step import NOTHING_LATE, KvOp
from framework.errors import FrameworkError
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.suites.runner_life import STEP, RunnerLife
from framework.testing.conformance.suites.runner_parts import read_only, values
from framework.testing.driver import Driver


class RunnerSteps(RunnerLife):
    """See `RunnerSuite`."""

    @clause("RUN-020", "a result echoes its plan row by row", of=("finish",))
    def results_echo_their_plans(self) -> None:
        for case in self.cases(3):
            driver = self.driver()
            slots = [int(slot) for slot in case.rng.permutation(8)[:4]]
            prompts = {slot: self.prompt(case) for slot in slots}
            for slot in slots:
                generation = int(case.rng.integers(1, 1000))
                driver.admit(slot, prompts[slot], self.sampling(), generation=generation)
            for turn in range(3):
                rows = [(slot, 1 if turn else len(prompts[slot])) for slot in slots]
                plan = driver.plan(*rows)
                result = driver.runner.finish(driver.runner.submit(plan), NOTHING_LATE)
                driver.absorb(plan, result)
                for name in ("step_id", "slots", "generations"):
                    mine, found = getattr(plan, name), getattr(result, name)
                    same = np.array_equal(mine, found)
                    expect(same, f"{name} is not echoed", expected=mine, found=found)
                for name in ("slots", "generations", "token_offsets", "token_ids", "accepted"):
                    dtype = np.asarray(getattr(result, name)).dtype
                    expect(dtype == np.int32, f"{name} of another type", found=dtype)
                offsets = result.token_offsets.tolist()
                ordered = offsets == sorted(offsets) and offsets[:1] == [0]
                fine = len(offsets) == 5 and ordered and offsets[-1] == len(result.token_ids)
                expect(fine, "token_offsets do not fit rows and tokens", found=offsets)
                slots = slots[::-1]

    @clause("RUN-021", "a plan without rows has its effects and an empty result", of=STEP)
    def empty_plans_are_legal(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            prompt = self.prompt(case)
            self.no_errors(driver.run())
            driver.admit(0, prompt, self.sampling())
            result = driver.run()
            expect(
                len(result.slots) == len(result.token_ids) == 0
                and result.token_offsets.tolist() == [0],
                "the result of a plan without rows is not empty",
                found=result,
            )
            found = self.tokens(driver.run((0, len(prompt))), 0)
            self.same((found, ()), self.alone(prompt, 1), "admitted with an empty plan")

    @clause("RUN-022", "a row that wants logits gets one token, others none", of=STEP)
    def tokens_go_to_who_wants_them(self) -> None:
        for case in self.cases(3):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 9), self.sampling())
            driver.admit(1, self.prompt(case, 6), self.sampling())
            result = driver.run((0, 4), (1, 6))
            found = [self.tokens(result, row) for row in range(2)]
            expect(
                [len(tokens) for tokens in found] == [0, 1],
                "the wrong rows get tokens",
                expected="none for the first, which is cut, and one for the second",
                found=found,
            )
            fine = 0 <= found[1][0] < self.info.vocab_size
            expect(fine, "a token outside the vocabulary", found=found[1])

    @clause("RUN-023", "a request gets the same beside others, in any row and slot", of=STEP)
    def company_makes_no_difference(self) -> None:
        for case in self.cases(2):
            driver = self.driver()
            slots = [int(slot) for slot in case.rng.permutation(8)[:4]]
            prompts = {slot: self.prompt(case) for slot in slots}
            case.note(lengths=[len(prompt) for prompt in prompts.values()])
            for slot in slots:
                driver.admit(slot, prompts[slot], self.sampling())
            scores: dict[int, list[np.ndarray]] = {slot: [] for slot in slots}
            for _ in range(4):
                order = [int(slot) for slot in case.rng.permutation(slots)]
                own = driver.requests
                rows = [(slot, len(own[slot].tokens) - own[slot].computed) for slot in order]
                result = driver.run(*rows)
                self.no_errors(result)
                for row, slot in enumerate(order):
                    scores[slot] += self.scores(result, row)
            for slot in slots:
                found = driver.requests[slot].tokens[len(prompts[slot]) :]
                self.same((found, scores[slot]), self.alone(prompts[slot], 4), "beside others")

    @clause("RUN-024", "a prompt in chunks is as one that is computed whole", of=STEP)
    def chunks_make_no_difference(self) -> None:
        for case in self.cases(3):
            driver = self.driver()
            prompt = self.prompt(case)
            driver.admit(0, prompt, self.sampling())
            driver.admit(1, self.prompt(case), self.sampling())
            driver.run((1, len(driver.requests[1].tokens)))
            left, scores, cuts = len(prompt), [], []
            while left:
                new = int(case.rng.integers(1, left + 1))
                cuts.append(new)
                result = driver.run((1, 1), (0, new))
                scores += self.scores(result, 1)
                left -= new
            case.note(prompt=len(prompt), chunks=cuts)
            found = driver.requests[0].tokens[len(prompt) :]
            self.same((found, scores), self.alone(prompt, 1), "in chunks")

    @clause(
        "RUN-025",
        "a request that was preempted goes on as if it had not been",
        of=STEP,
    )
    def preemptions_make_no_difference(self) -> None:
        for case in self.cases(2):
            driver = self.driver()
            prompt = self.prompt(case)
            random = bool(case.index % 2)
            sampling = self.sampling(temperature=1.0) if random else self.sampling()
            case.note(random=random)
            driver.admit(0, prompt, sampling, seed=5)
            driver.run((0, len(prompt)))
            driver.generate(0, 2)
            known = driver.requests[0].tokens
            driver.release(0)
            driver.admit(3, self.prompt(case), self.sampling())
            driver.run((3, 5))
            driver.admit(2, known, sampling, seed=5, num_prompt=len(prompt))
            driver.run((2, len(known)))
            driver.generate(2, 3)
            found = driver.requests[2].tokens[len(prompt) :]
            true, _ = self.alone(prompt, len(found), sampling, seed=5)
            self.same((found, ()), (true, ()), "after a preemption")

    @clause("RUN-026", "the next owner of a slot inherits nothing", of=STEP)
    def owners_inherit_nothing(self) -> None:
        for case in self.cases(2):
            driver = self.driver()
            prompt = self.prompt(case)
            for generation in (1, 2):
                driver.admit(0, self.prompt(case, 18), self.sampling(), generation=generation)
                driver.run((0, int(case.rng.integers(1, 18))))
                driver.release(0)
            driver.admit(0, prompt, self.sampling(), generation=3)
            result = driver.run((0, len(prompt)))
            self.no_errors(result)
            found = self.tokens(result, 0), self.scores(result, 0)
            self.same(found, self.alone(prompt, 1), "in a slot that was used")

    @clause("RUN-027", "a row of another generation than its slot's owner gets no token", of=STEP)
    def stale_rows_get_nothing(self) -> None:
        for case in self.cases(2):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 8), self.sampling())
            driver.run((0, 8))
            driver.release(0)
            driver.admit(0, self.prompt(case, 8), self.sampling(), generation=9)
            driver.requests[0].generation = 1 if case.index else 8
            plan = driver.plan((0, 8))
            try:
                result = driver.runner.finish(driver.runner.submit(plan), NOTHING_LATE)
            except FrameworkError:
                continue  # the whole step is refused: it can be a fault of the engine only
            expect(
                not self.tokens(result, 0) and 0 in result.errors,
                "a row that names an owner who has left is computed for the next one",
                expected="an error and no token",
                found=self.tokens(result, 0),
            )

    @clause("RUN-028", "plans stay as they were, and may be read-only", of=STEP)
    def plans_are_not_changed(self) -> None:
        for case in self.cases(1):
            driver = self.driver()
            driver.admit(0, self.prompt(case, 9), self.sampling())
            for new in (9, 1, 1):
                plan = read_only(driver.plan((0, new)))
                before = values(plan)
                result = driver.runner.finish(driver.runner.submit(plan), NOTHING_LATE)
                expect(values(plan) == before, "the plan was changed", expected=before)
                driver.absorb(plan, result)

    @clause("RUN-029", "random tokens depend on seed and position only", of=STEP)
    def randomness_is_keyed(self) -> None:
        for case in self.cases(2):
            driver, prompt = self.driver(), self.prompt(case)
            sampling = self.sampling(temperature=1.0)
            driver.admit(4, prompt, sampling, seed=11)
            driver.admit(1, prompt, sampling, seed=12)
            driver.admit(6, self.prompt(case, 7), sampling, seed=11)
            driver.run((6, 7), (1, len(prompt)), (4, len(prompt)))
            for _ in range(3):
                driver.run((4, 1), (6, 1), (1, 1))
            found = driver.requests[4].tokens[len(prompt) :]
            true, _ = self.alone(prompt, len(found), sampling, seed=11)
            self.same((found, ()), (true, ()), "seeded, beside others")

    # Pages

    def _twin(self, driver: Driver, prompt: list[int]) -> list[list[int]]:
        """Compute `prompt` in slot 0; the page tables of what can be shared."""
        driver.admit(0, prompt, self.sampling())
        driver.run((0, len(prompt)))
        full = (len(prompt) - 1) // self.page_tokens
        return [table[:full] for table in driver.requests[0].pages]

    @clause("RUN-030", "a request may begin with pages that another has computed", of=STEP)
    def pages_may_be_shared(self) -> None:
        for case in self.cases(2):
            driver, prompt = self.driver(), self.prompt(case, int(case.rng.integers(9, 20)))
            pages = self._twin(driver, prompt)
            own = [*prompt[:-1], (prompt[-1] + 1) % 20]
            shared = len(pages[0]) * self.page_tokens
            case.note(prompt=len(prompt), shared=shared)
            driver.admit(5, own, self.sampling(), computed=shared, pages=pages)
            result = driver.run((0, 1), (5, len(own) - shared))
            found = self.tokens(result, 1), self.scores(result, 1)
            self.same(found, self.alone(own, 1), "on pages of another")

    @clause(
        "RUN-031", "operations on pages are done in their order, before the step's tokens", of=STEP
    )
    def operations_are_done_in_order(self) -> None:
        for case in self.cases(2):
            driver, prompt = self.driver(), self.prompt(case, 13)
            pages, ops = self._twin(driver, prompt), []
            copies: list[list[int]] = []
            for group, table in enumerate(pages):
                copies.append([])
                for page in table:
                    between, last = driver.free.pop(), driver.free.pop()
                    ops += [
                        KvOp("zero", group, 0, last),
                        KvOp("copy", group, page, between),
                        KvOp("copy", group, between, last),
                        KvOp("zero", group, 0, between),
                    ]
                    copies[-1].append(last)
            shared = len(pages[0]) * self.page_tokens
            driver.admit(5, prompt, self.sampling(), computed=shared, pages=copies)
            result = driver.run((5, len(prompt) - shared), kv_ops=tuple(ops))
            found = self.tokens(result, 0), self.scores(result, 0)
            self.same(found, self.alone(prompt, 1), "on copied pages")
