"""The suite of kind `speculative_proposer`: what holds of any, however well it guesses.

A proposer that needs the tokens alone is compared with itself: a row alone, beside others, in
another slot, after others, once more.  One with a model is checked as far as no model is needed;
its own tests compare it with what it should say.
"""

from __future__ import annotations

import copy
from typing import ClassVar

import numpy as np

from framework.contracts.proposer import ProposerInfo
from framework.errors import FrameworkError
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suites.proposer_parts import SLOTS, ProposerBase, Row

NEEDS = ("tokens", "hidden_states", "model")
PROPOSE = ("propose",)


class SpeculativeProposerSuite(ProposerBase):
    """propose_budget: seconds that drafts for 32 requests of 2,000 tokens may take."""

    ordinary = ("drafts_can_be", "it_loads_alone")
    propose_budget: ClassVar[float] = 0.05

    @clause("PROP-001", "it says what it needs", layer=Layer.CONSTRUCT, of=PROPOSE)
    def need_is_known(self) -> None:
        need: object = self.new().need
        expect(need in NEEDS, "`need` is unknown", expected=NEEDS, found=need)

    @clause(
        "PROP-010",
        "each row gets ids of the vocabulary, no more than are wanted",
        needs="tokens_only",
        of=PROPOSE,
    )
    def drafts_can_be(self) -> None:
        for case in self.cases(12):
            rows = [self.row(case, slot) for slot in (0, 3, 5)]
            self.ask(self.begun(rows), rows)
            again = np.array([5, 6, 7, 8, 9, 10, 11, 12] * 6, np.int32)
            few = [Row(slot, again[: len(again) - slot], 1) for slot in range(SLOTS)]
            self.ask(self.begun(few), few)
            short = [Row(slot, row.tokens[:2], 1) for slot, row in enumerate(rows)]
            self.ask(self.begun(short), short)

    @clause(
        "PROP-011",
        "a row's drafts are the same beside others and alone, in any order",
        needs="tokens_only",
        of=PROPOSE,
    )
    def rows_are_independent(self) -> None:
        for case in self.cases(8):
            rows = [self.row(case, int(slot)) for slot in case.rng.permutation(SLOTS)[:4]]
            own = self.begun(rows)
            for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3]):
                found = self.ask(own, [rows[index] for index in order])
                wanted = [self.fresh(rows[index]) for index in order]
                expect(found == wanted, "rows mix", expected=wanted, found=found)

    @clause("PROP-012", "to be asked again changes nothing", needs="tokens_only", of=PROPOSE)
    def asking_is_no_event(self) -> None:
        for case in self.cases(6):
            row = self.row(case, 2)
            own = self.begun([row])
            found = [self.ask(own, [row])[0] for _ in range(3)]
            expect(found == found[:1] * 3, "asked again, it says otherwise", found=found)

    @clause("PROP-013", "what it is shown stays as it was", needs="tokens_only", of=PROPOSE)
    def arguments_stay(self) -> None:
        for case in self.cases(4):
            rows = [self.row(case, slot) for slot in (1, 4)]
            own, step = self.begun(rows), self.step(rows)
            before = copy.deepcopy(step)
            own.propose(step)
            for name in ("slots", "starts", "lengths", "wanted", "sampled", "tokens"):
                same = np.array_equal(getattr(step, name), getattr(before, name))
                expect(same, f"{name} was changed")

    @clause(
        "PROP-014",
        "a slot forgets who was in it, also where nobody said that he left",
        needs="tokens_only",
        of=("admit", "drop"),
    )
    def slots_forget(self) -> None:
        for case in self.cases(6):
            first, second = self.row(case, 3), self.row(case, 3)
            wanted = self.fresh(second)
            for dropped in (True, False):
                own = self.begun([first])
                self.ask(own, [first])
                if dropped:
                    own.drop(3)
                self.admit(own, 3, second.tokens[:-1])
                found = self.ask(own, [second])[0]
                expect(found == wanted, "of the one before", expected=wanted, found=found)

    @clause(
        "PROP-015",
        "a request goes on in another slot as if it had stayed",
        needs="tokens_only",
        of=("admit",),
    )
    def requests_can_move(self) -> None:
        for case in self.cases(6):
            row = self.row(case, 6)
            own = self.loaded()
            self.admit(own, 1, row.tokens[:2])
            for length in range(3, len(row.tokens) + 1):
                stayed = self.ask(own, [Row(1, row.tokens[:length], row.wanted)])[0]
            own.drop(1)
            self.admit(own, 6, row.tokens)
            found = self.ask(own, [row])[0]
            expect(found == stayed, "moved, it says otherwise", expected=stayed, found=found)

    @clause(
        "PROP-016",
        "steps in which it was not asked make no difference",
        needs="tokens_only",
        of=PROPOSE,
    )
    def steps_may_be_left_out(self) -> None:
        for case in self.cases(6):
            row = self.row(case, 2)
            own = self.loaded()
            self.admit(own, 2, row.tokens[:1])
            for length in range(3, len(row.tokens), int(case.rng.integers(2, 6))):
                self.ask(own, [Row(2, row.tokens[:length], row.wanted)])
            found, wanted = self.ask(own, [row])[0], self.fresh(row)
            expect(found == wanted, "left out, it says otherwise", expected=wanted, found=found)

    @clause(
        "PROP-017",
        "drafts for 32 requests of 2,000 tokens are quick: they cost every step",
        needs="tokens_only",
        must=False,
        of=PROPOSE,
    )
    def drafts_are_quick(self) -> None:
        rng = np.random.default_rng(self.seed)
        rows = [Row(s, rng.integers(0, 50, 2000).astype(np.int32)) for s in range(32)]
        own = self.loaded(32, 2100)
        for row in rows:
            self.admit(own, row.slot, row.tokens[:-1])
        step = self.step(rows, 32, 2100)

        def measure() -> float:
            began = self.now()
            own.propose(step)
            return self.now() - began

        took = self.quickest(measure, self.propose_budget)
        self.expect_quick(took, self.propose_budget, "proposing is slow")

    @clause(
        "PROP-018",
        "a text that repeats gets drafts",
        needs="tokens_only",
        must=False,
        of=PROPOSE,
    )
    def repetitions_are_seen(self) -> None:
        tokens = np.array([5, 6, 7, 8, 9, 10, 11, 12] * 6, np.int32)
        for cut in range(8):
            if self.fresh(Row(2, tokens[: len(tokens) - cut])):
                return
        raise Violation("a text that repeats six times gets no drafts at any place")

    @clause("PROP-019", "instances share nothing", needs="tokens_only", of=("admit", "drop"))
    def instances_are_apart(self) -> None:
        """Another engine may have requests in the same slots."""
        for case in self.cases(4):
            first, second = self.row(case, 3), self.row(case, 3)
            own, other = self.begun([first]), self.begun([second])
            for made, row in ((own, first), (other, second), (own, first)):
                found, wanted = self.ask(made, [row])[0], self.fresh(row)
                expect(found == wanted, "beside another", expected=wanted, found=found)
            other.drop(3)
            found, wanted = self.ask(own, [first])[0], self.fresh(first)
            expect(found == wanted, "after a drop in another", expected=wanted, found=found)

    @clause("PROP-101", "it loads without a model", needs="tokens_only", of=("load",))
    def it_loads_alone(self) -> None:
        info = self.load(self.new())
        expect(isinstance(info, ProposerInfo), "load answers otherwise", found=type(info).__name__)
        assert isinstance(info, ProposerInfo)
        expect(not info.layers, "it has layers", expected="none", found=list(info.layers))
        expect(not info.taps, "it wants hidden states", expected="none", found=info.taps)

    @clause(
        "PROP-201",
        "without what it reads it does not load, and says what is missing",
        lacks="tokens_only",
        of=("load",),
    )
    def it_refuses_to_load_alone(self) -> None:
        own = self.new()
        if own.need == "model":  # the runner lets nobody load that reads a model and has none
            return
        try:
            self.load(own)
        except FrameworkError:
            return
        except Violation:
            return
        except Exception as error:
            raise Violation(f"load without `speculative_model` raises {error!r}") from error
