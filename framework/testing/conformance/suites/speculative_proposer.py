"""The suite of kind `speculative_proposer`: what holds of any, however well it guesses.

A proposer that needs the tokens alone is compared with itself: a row alone, beside others, in
another slot, after others, once more.  One with a model is checked as far as no model is needed;
its own tests compare it with what it should say.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from framework.contracts.model_source import ModelFiles
from framework.contracts.proposer import ComputedStep, ProposerContext, ProposerInfo
from framework.contracts.sampling import SamplingParams
from framework.contracts.step import I32, AdmittedRequest
from framework.errors import FrameworkError
from framework.testing.conformance.cases import Case, expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suite import Suite

SLOTS, WIDTH, MOST = 8, 160, 4
NEEDS = ("tokens", "hidden_states", "model")
PROPOSE = ("propose",)
FILES = ModelFiles(name="target", root=Path("target"), weights=(), format="none", config={})


class Row(NamedTuple):
    """A request in a slot with all its tokens, of which `new` came with the last step."""

    slot: int
    tokens: I32
    wanted: int = MOST
    new: int = 1


class Target:
    """In place of a model; it has a vocabulary and nothing else."""

    max_model_len = WIDTH

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __getattr__(self, name: str) -> Any:
        raise Violation(f"the model's {name} is used, and `need` says that tokens are enough")


class SpeculativeProposerSuite(Suite):
    """propose_budget: seconds that drafts for 32 requests of 2,000 tokens may take.  vocab_size:
    ids are below it."""

    kind = "speculative_proposer"
    capabilities = ("tokens_only",)
    propose_budget: ClassVar[float] = 0.05
    vocab_size: ClassVar[int] = 300

    def declared(self) -> frozenset[str]:
        """`tokens_only`: `need` is "tokens"."""
        return frozenset(self.capabilities) if self.new().need == "tokens" else frozenset()

    def loaded(self, slots: int = SLOTS, width: int = WIDTH) -> Any:
        """A new instance that was told of its model."""
        own = self.new()
        self.load(own, slots, width)
        return own

    def load(self, own: Any, slots: int = SLOTS, width: int = WIDTH) -> object:
        target: Any = Target(self.vocab_size)

        def build(files: ModelFiles) -> Any:
            raise Violation("a model is built, and `speculative_model` names none")

        return own.load(
            ProposerContext(
                target=target,
                files=FILES,
                draft_files=None,
                max_drafts=MOST,
                max_slots=slots,
                max_len=width - 1,
                dtype="float32",
                device="cpu",
                build=build,
            )
        )

    def admit(self, own: Any, slot: int, tokens: I32) -> None:
        own.admit(
            AdmittedRequest(
                slot=slot,
                generation=1,
                request_id=f"request-{slot}",
                tokens=tokens.copy(),
                num_prompt=max(1, len(tokens) // 2),
                sampling=SamplingParams(),
                seed=slot,
            )
        )

    def step(self, rows: Sequence[Row], slots: int = SLOTS, width: int = WIDTH) -> ComputedStep:
        """What the runner shows after a step of these rows."""
        table = np.full((slots, width), self.vocab_size - 1, np.int32)
        for row in rows:
            table[row.slot, : len(row.tokens)] = row.tokens
        lengths = np.array([len(row.tokens) for row in rows], np.int32)
        return ComputedStep(
            slots=np.array([row.slot for row in rows], np.int32),
            starts=lengths - np.array([row.new + 1 for row in rows], np.int32),
            lengths=lengths,
            wanted=np.array([row.wanted for row in rows], np.int32),
            sampled=np.ones(len(rows), np.bool_),
            tokens=table,
        )

    def ask(self, own: Any, rows: Sequence[Row]) -> list[list[int]]:
        """Drafts of each row; raises Violation if they cannot be."""
        answer = own.propose(self.step(rows))
        drafts = [np.asarray(ids).reshape(-1).tolist() for ids in answer]
        expect(len(drafts) == len(rows), "rows lack", expected=len(rows), found=len(drafts))
        for row, ids in zip(rows, drafts, strict=True):
            expect(len(ids) <= row.wanted, "too many drafts", expected=row.wanted, found=len(ids))
            good = all(type(token) is int and 0 <= token < self.vocab_size for token in ids)
            expect(good, "ids out of range", expected=f"below {self.vocab_size}", found=ids)
        return drafts

    def fresh(self, row: Row) -> list[int]:
        """The drafts of a new instance that has seen nothing else."""
        own = self.loaded()
        self.admit(own, row.slot, row.tokens[:-1])
        return self.ask(own, [row])[0]

    def row(self, case: Case, slot: int) -> Row:
        """Few different tokens, so that they come again."""
        kinds = int(case.rng.choice([2, 4, self.vocab_size]))
        tokens = case.rng.integers(0, kinds, int(case.rng.integers(3, 60))).astype(np.int32)
        if case.index % 2:
            tokens = np.concatenate([tokens, tokens, tokens[:5]])
        return Row(slot, tokens, int(case.rng.integers(1, MOST + 1)))

    def begun(self, rows: Sequence[Row]) -> Any:
        """An instance to which the requests were told."""
        own = self.loaded()
        for row in rows:
            self.admit(own, row.slot, row.tokens[:-1])
        return own

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
