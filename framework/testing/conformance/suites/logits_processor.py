"""The suite for logits processors: what holds of any, whatever it does to its rows.

What a processor does with its arguments nobody knows but its author; so the suite compares it
with itself: a row alone, beside others, in another slot, after others, once more.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np

from framework.contracts.sampling import SamplingParams
from framework.errors import InputError
from framework.testing.conformance import garbage
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suites.logits_parts import (
    F32,
    LogitsSuite,
    Row,
    check_same,
)
from framework.testing.conformance.suites.odd_arguments import hostile
from framework.testing.conformance.suites.place import bridge_to

LONG_OUTPUT = 4000
"""Tokens of an answer with reasoning."""


class LogitsProcessorSuite(LogitsSuite):
    """What holds of any, whatever its arguments mean."""

    @clause("LOGIT-001", "it has examples of arguments", of=("apply",))
    def examples_are_there(self) -> None:
        found = self.new().examples
        good = isinstance(found, tuple) and found
        expect(good, "no examples", expected="a tuple of valid arguments", found=found)

    @clause("LOGIT-002", "examples are valid, and so is no argument", of=("validate",))
    def examples_are_valid(self) -> None:
        others = SamplingParams(extra_args={"of_another_plugin": "value"})
        for sampling in (*map(self.sampling, self.examples), SamplingParams(), others):
            try:
                self.new().validate(sampling)
            except InputError as error:
                raise Violation(f"{sampling.extra_args} is refused: {error}") from error

    @clause("LOGIT-003", "validate raises InputError and nothing else", of=("validate",))
    def validate_raises_input_errors(self) -> None:
        own = self.new()
        for argument in hostile(own.examples):
            try:
                own.validate(self.sampling(argument))
            except InputError:
                continue
            except Exception as error:
                raise Violation(
                    f"validate({argument!r:.80})\n  expected: nothing, or InputError\n"
                    f"  found:    {error!r}"
                ) from error

    @clause(
        "LOGIT-004", "what validate lets pass can be admitted and applied", of=("admit", "apply")
    )
    def valid_arguments_work(self) -> None:
        arguments = hostile(self.new().examples)
        for case in self.cases(len(arguments)):
            argument, own = arguments[case.index], self.new()
            case.note(argument=f"{argument!r:.80}")
            try:
                own.validate(self.sampling(argument))
            except InputError:
                continue
            row = self.row(case, 1)
            row.logits[:] = np.nan_to_num(row.logits, neginf=-30.0)  # each token can be had
            after = self.fresh(argument, row)
            _check_numbers(after, chosen=False)

    @clause("LOGIT-010", "rows without arguments are left alone", of=("apply",))
    def other_rows_are_left_alone(self) -> None:
        for case in self.cases(6):
            own, (argument,) = self.new(), self.pick(case)
            self.admit(own, 2, self.sampling(argument))
            self.admit(own, 0, SamplingParams())
            self.admit(own, 5, SamplingParams(extra_args={"of_another_plugin": argument}))
            rows = [self.row(case, slot) for slot in (0, 2, 5)]
            after = self.apply(own, rows)
            for place in (0, 2):
                check_same(
                    after[place], rows[place].logits, f"row {place}, which has no arguments,"
                )

    @clause("LOGIT-011", "a row is the same beside others and alone, in any order", of=("apply",))
    def rows_are_independent(self) -> None:
        for case in self.cases(6):
            own, arguments = self.new(), self.pick(case, 4)
            slots = [int(slot) for slot in case.rng.permutation(9)[:4]]
            rows = [self.row(case, slot) for slot in slots]
            for row, argument in zip(rows, arguments, strict=True):
                self.admit(own, row.slot, self.sampling(argument), row.output)
            for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3]):
                after = self.apply(own, [rows[index] for index in order])
                for place, index in enumerate(order):
                    alone = self.fresh(arguments[index], rows[index])
                    check_same(after[place], alone, f"row {index} in order {order}")

    @clause("LOGIT-012", "a slot may come more than once in a call", of=("apply",))
    def slots_may_repeat(self) -> None:
        for case in self.cases(4):
            own, (argument, other) = self.new(), self.pick(case, 2)
            self.admit(own, 3, self.sampling(argument))
            self.admit(own, 1, self.sampling(other))
            rows = [self.row(case, slot) for slot in (3, 1, 3, 3)]
            after = self.apply(own, rows)
            for place, row in enumerate(rows):
                alone = self.fresh(argument if row.slot == 3 else other, row)
                check_same(after[place], alone, f"row {place} of slots 3, 1, 3, 3")

    @clause("LOGIT-013", "a call can be made once more: no calls are counted", of=("apply",))
    def calls_can_be_repeated(self) -> None:
        for case in self.cases(4):
            own, (argument,) = self.new(), self.pick(case)
            row = self.row(case, 4)
            self.admit(own, 4, self.sampling(argument), row.output)
            first = self.apply(own, [row])[0]
            for _ in range(3):
                check_same(self.apply(own, [row])[0], first, "the same row once more")

    @clause("LOGIT-014", "a slot that was dropped is forgotten", of=("admit", "drop"))
    def dropped_slots_are_forgotten(self) -> None:
        for case in self.cases(4):
            own, (argument, other) = self.new(), self.pick(case, 2)
            row = self.row(case, 2)
            self.admit(own, 2, self.sampling(argument))
            self.apply(own, [row])
            own.drop(2)
            self.admit(own, 2, SamplingParams())
            check_same(self.apply(own, [row])[0], row.logits, "a row of the next owner of a slot")
            own.drop(2)
            self.admit(own, 2, self.sampling(other))
            check_same(
                self.apply(own, [row])[0], self.fresh(other, row), "a row of the third owner"
            )

    @clause("LOGIT-015", "a request goes on in another slot as if it had stayed", of=("admit",))
    def requests_can_move(self) -> None:
        for case in self.cases(4):
            own, (argument,) = self.new(), self.pick(case)
            row = self.row(case, 6)
            self.admit(own, 1, self.sampling(argument))
            for length in range(len(row.output)):
                self.apply(own, [Row(1, row.logits, row.output[:length])])
            stayed = self.apply(own, [Row(1, row.logits, row.output)])[0]
            own.drop(1)
            self.admit(own, 6, self.sampling(argument), row.output)
            check_same(self.apply(own, [row])[0], stayed, "a row after a preemption")

    @clause("LOGIT-016", "slots and outputs are only read", of=("apply",))
    def inputs_stay(self) -> None:
        for case in self.cases(3):
            own, (argument,) = self.new(), self.pick(case)
            row = self.row(case, 2)
            self.admit(own, 2, self.sampling(argument))
            before, slots = row.output.copy(), np.full(2, row.slot, np.int32)
            self.apply(own, [row, row], slots)
            expect(np.array_equal(row.output, before), "outputs were changed", found=row.output)
            expect((slots == row.slot).all(), "slots were changed", found=slots)

    @clause("LOGIT-017", "no logit becomes NaN, and a token is left to choose", of=("apply",))
    def logits_stay_numbers(self) -> None:
        for case in self.cases(6):
            row = self.row(case, 2)
            after = self.fresh(self.pick(case)[0], row)
            _check_numbers(after)

    @clause("LOGIT-018", "a token that was forbidden stays so", must=False, of=("apply",))
    def forbidden_tokens_stay(self) -> None:
        for case in self.cases(8):
            row = self.row(case, 2)
            row.logits[row.output] = -np.inf  # what it minds of the past may be forbidden
            row.logits[: case.index * 4] = -np.inf  # and what the arguments name
            after = self.fresh(self.pick(case)[0], row)
            revived = np.isinf(row.logits) & ~np.isinf(after)
            expect(not revived.any(), "forbidden tokens return", found=np.flatnonzero(revived)[:9])

    @clause("LOGIT-019", "an example has an effect, in place", must=False, of=("apply",))
    def arguments_have_an_effect(self) -> None:
        for argument in self.examples:
            for index in range(20):
                row = self.row(Case("LOGIT-019", self.seed, index), 2)
                if not np.array_equal(self.fresh(argument, row), row.logits):
                    return
        raise Violation("no example changes a logit; `logits` is to be changed in place")

    @clause("LOGIT-020", "instances share nothing", of=("admit", "apply", "drop"))
    def instances_are_apart(self) -> None:
        """That of the front end, and those of other engines."""
        for case in self.cases(2):
            own, other, (argument,) = self.new(), self.new(), self.pick(case)
            row = self.row(case, 2)
            self.admit(own, 2, self.sampling(argument))
            first = self.apply(own, [row])[0]
            untouched = self.apply(other, [row])[0]
            check_same(untouched, row.logits, "a row of an instance that was given no request")
            self.admit(other, 2, SamplingParams())
            other.drop(2)
            check_same(self.apply(own, [row])[0], first, "a row after a drop in another instance")

    @clause("LOGIT-021", "any number of rows is taken, and none", of=("apply",))
    def any_number_of_rows(self) -> None:
        for case in self.cases(2):
            own, (argument,) = self.new(), self.pick(case)
            every = [self.row(case, slot) for slot in range(33)]
            for row in every:
                self.admit(own, row.slot, self.sampling(argument), row.output)
            for count in (0, 1, 33, 2):
                after = self.apply(own, every[:count])
                for row, found in list(zip(every, after, strict=False))[::8]:
                    alone = self.fresh(argument, row)
                    check_same(found, alone, f"row {row.slot} of {count}")

    @clause("LOGIT-022", "it keeps nothing of a call: logits and outputs go", of=("apply",))
    def calls_are_let_go(self) -> None:
        for case in self.cases(1):
            own, (argument,) = self.new(), self.pick(case)
            row = self.row(case, 2)
            self.admit(own, 2, self.sampling(argument))
            bridge = bridge_to(self.target.registry, self.tensor_api)
            with garbage.of_its_own():
                logits = bridge.tensor(row.logits[None], "float32", self.device)
                output = row.output.copy()
                own.apply(logits, np.full(1, 2, np.int32), (output,))
                held = {"logits": weakref.ref(logits), "outputs": weakref.ref(output)}
                del logits, output
                gc.collect()
            kept = [name for name, ref in held.items() if ref() is not None]
            expect(not kept, "it holds what a call gave it", found=" and ".join(kept))

    @clause("LOGIT-023", "long outputs cost it little", must=False, of=("admit", "apply"))
    def long_outputs_are_quick(self) -> None:
        """Once an output was seen, a step looks at what is new of it."""
        for case in self.cases(1):
            own, (argument,) = self.new(), self.pick(case)
            ids = case.rng.integers(0, self.vocab_size, LONG_OUTPUT).astype(np.int32)
            row = Row(2, self.row(case, 2).logits, ids)
            self.admit(own, 2, self.sampling(argument), ids)

            def measure(own: Any = own, row: Row = row) -> float:
                started = self.now()
                self.apply(own, [row])
                return self.now() - started

            seconds = self.quickest(measure, self.apply_budget)
            what = f"a step of a request that has generated {LONG_OUTPUT} tokens is slow"
            self.expect_quick(seconds, self.apply_budget, what, ", for each step")

    @clause("LOGIT-101", "the best token stays the best one", needs="keeps_argmax", of=("apply",))
    def best_token_stays(self) -> None:
        for case in self.cases(20):
            row = self.open_row(case)
            after = self.fresh(self.pick(case)[0], row)
            best, now = int(row.logits.argmax()), int(after.argmax())
            expect(now == best, "greedy rows change", expected=f"token {best}", found=now)

    @clause(
        "LOGIT-201",
        "some example changes which token is best; else `changes_argmax` is False",
        lacks="keeps_argmax",
        must=False,
        of=("apply",),
    )
    def best_token_changes(self) -> None:
        for argument in self.examples:
            for index in range(60):
                row = self.open_row(Case("LOGIT-201", self.seed, index))
                if self.fresh(argument, row).argmax() != row.logits.argmax():
                    return
        raise Violation("greedy rows are never changed, and pay for the call")


def _check_numbers(logits: F32, *, chosen: bool = True) -> None:
    """Violation for a row that is none.  chosen: a token must be left; who asks to forbid all of
    them has none."""
    nan = np.flatnonzero(np.isnan(logits))
    expect(not len(nan), "a logit is NaN", found=f"those of tokens {nan[:5]}")
    expect(not chosen or np.isfinite(logits.max()), "no token can be chosen", found=logits.max())
