"""Proposers in the runner: the tokens stay the same whatever they propose."""

import logging
from typing import ClassVar

import numpy as np
import pytest

from framework.contracts.proposer import SpeculativeProposer
from framework.contracts.sampling import SamplingParams
from framework.errors import ConfigError
from framework.plugins.registry import PluginRegistry
from framework.testing.driver import Driver
from framework_torch.drafting.lengths import StepCost
from framework_torch.runner import TorchRunner

PROMPT = [5, 17, 80, 3, 41, 9, 66, 2, 11]
GREEDY = SamplingParams(temperature=0.0, max_tokens=64)
DRAWN = SamplingParams(temperature=1.0, max_tokens=64, seed=3, min_p=0.01, logit_bias={5: 2.0})


@pytest.fixture(autouse=True)
def steady_costs(monkeypatch):
    """No test depends on how long a step takes here."""
    monkeypatch.setattr(StepCost, "share", lambda self: 0.1)


class Tells(SpeculativeProposer):
    """Proposes what the test says, and writes down what it is shown."""

    right: ClassVar[list[int]] = []
    shown: ClassVar[list] = []
    calls: ClassVar[list] = []

    def admit(self, request):
        self.calls.append(("admit", request.slot, request.tokens.tolist()))

    def drop(self, slot):
        self.calls.append(("drop", slot))

    def propose(self, step):
        self.shown.append((step.slots.tolist(), step.lengths.tolist(), step.wanted.tolist()))
        return [self.guess(step.known(row), step.wanted[row]) for row in range(len(step))]

    def guess(self, known, wanted):
        return self.right[len(known) :][:wanted]


class Wrong(Tells):
    def guess(self, known, wanted):
        return [(token + 1) % 96 for token in super().guess(known, wanted)]


class Half(Tells):
    def guess(self, known, wanted):
        found = super().guess(known, wanted)
        return [*found[:1], *[(token + 1) % 96 for token in found[1:]]]


class Raises(Tells):
    def propose(self, step):
        raise RuntimeError("no idea")


class RaisesInAdmit(Tells):
    def admit(self, request):
        raise RuntimeError("no room")


class TooMany(Tells):
    def guess(self, known, wanted):
        return [1] * (wanted + 1)


class OutOfRange(Tells):
    def guess(self, known, wanted):
        return [96]


class OneRowTooFew(Tells):
    def propose(self, step):
        return [[1]] * (len(step) - 1)


class Ends(Tells):
    def propose(self, step):
        raise SystemExit(1)


@pytest.fixture
def files(tiny):
    return tiny("llama").files


@pytest.fixture
def started(files, context):
    """started(proposer or None, ...) -> a bound driver."""

    def make(proposer, most=4, **changes):
        options = {}
        if proposer is not None:
            proposer.shown, proposer.calls = [], []
            name = f"{__name__}:{proposer.__name__}"
            options = {
                "registry": PluginRegistry(ad_hoc={"speculative_proposer:own": name}),
                "proposer": "own",
                "max_drafts": most,
            }
        runner = TorchRunner()
        given = context(files)
        for key, value in {**options, **changes}.items():
            object.__setattr__(given, key, value)
        info = runner.load(given)
        driver = Driver(runner)
        driver.bind(info)
        return driver

    return make


def go_on(driver, slot, count, most=4):
    """Steps with the drafts that the step before brought, until `count` tokens are there."""
    own = driver.requests[slot]
    steps, accepted = 0, []
    drafts, new = [], len(own.tokens) - own.computed
    while len(own.tokens) < len(PROMPT) + count:
        result = driver.run(
            (slot, new + len(drafts)), drafts={slot: drafts} if drafts else {}, drafts_wanted=most
        )
        steps += 1
        accepted.append(int(result.accepted[0]))
        drafts, new = result.draft_ids.tolist(), 1
    return own.tokens[: len(PROMPT) + count], steps, accepted


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN])
@pytest.mark.parametrize("proposer", [Tells, Wrong, Half])
def test_tokens_are_those_without_drafts(started, proposer, sampling):
    plain = started(None)
    plain.admit(0, PROMPT, sampling)
    right, steps, _ = go_on(plain, 0, 20, most=0)
    assert steps == 20

    proposer.right = right
    driver = started(proposer)
    driver.admit(0, PROMPT, sampling)
    found, steps, accepted = go_on(driver, 0, 20)
    assert found == right
    assert steps == {Tells: steps, Half: steps, Wrong: 20}[proposer]
    if proposer is Tells:
        assert steps <= 12
        assert max(accepted) >= 3
    if proposer is Wrong:
        assert not any(accepted)


def test_right_drafts_become_more_and_wrong_ones_fewer(started, tiny):
    right = PROMPT + tiny("llama").greedy(PROMPT, 30)
    seen = {}
    for proposer in (Tells, Wrong):
        proposer.right = right
        driver = started(proposer)
        driver.admit(0, PROMPT, GREEDY)
        go_on(driver, 0, 24)
        seen[proposer] = [counts[0] for _, _, counts in proposer.shown]
    assert seen[Tells][0] == seen[Wrong][0] == 4
    assert set(seen[Tells][1:]) == {4}
    assert seen[Wrong][-1] == 1
    assert seen[Wrong] == sorted(seen[Wrong], reverse=True)
    assert len(seen[Wrong]) < 20, "in some steps none was of use"


def test_it_is_told_who_enters_and_who_leaves(started):
    Tells.right = []
    driver = started(Tells)
    driver.admit(2, PROMPT, GREEDY)
    driver.run((2, 4), drafts_wanted=4)
    assert Tells.shown == [], "nothing was sampled, so nothing is proposed"
    driver.run((2, 5), drafts_wanted=4)
    assert Tells.shown[0][:2] == ([2], [10])
    driver.release(2)
    driver.admit(1, PROMPT[:3], GREEDY)
    driver.run((1, 3), drafts_wanted=0)
    assert len(Tells.shown) == 1, "none are wanted"
    assert Tells.calls == [("admit", 2, PROMPT), ("drop", 2), ("admit", 1, PROMPT[:3])]


@pytest.mark.parametrize(
    ("proposer", "words"),
    [
        (Raises, "failed in propose: RuntimeError: no idea"),
        (Ends, "failed in propose: SystemExit"),
        (RaisesInAdmit, "failed in admit: RuntimeError: no room"),
        (TooMany, "at most"),
        (OutOfRange, r"proposed array\(\[96\]\)"),
        (OneRowTooFew, "proposed for 0 rows of 1"),
    ],
)
def test_a_broken_proposer_is_named_and_disturbs_nobody(started, tiny, caplog, proposer, words):
    right = PROMPT + tiny("llama").greedy(PROMPT, 8)
    driver = started(proposer)
    driver.admit(0, PROMPT, GREEDY)
    with caplog.at_level(logging.WARNING):
        found, steps, _ = go_on(driver, 0, 8)
    assert found == right
    assert steps == 8
    (line,) = caplog.messages
    assert "speculative_proposer:own" in line
    assert "slots [0]" in line
    caplog.clear()
    driver.release(0)
    proposer.right = right
    driver.admit(0, PROMPT, GREEDY)  # the next owner of the slot is asked about again
    with caplog.at_level(logging.WARNING):
        driver.run((0, 9), drafts_wanted=4)
    assert len(caplog.messages) == 1


def test_no_draft_is_proposed_past_the_longest_sequence(started, files):
    Tells.right = list(range(96)) * 2
    driver = started(Tells, max_model_len=12)
    driver.admit(0, PROMPT, GREEDY)
    driver.run((0, 9), drafts_wanted=4)
    assert Tells.shown[0][2][0] <= 12 - 10
    driver.run((0, 1), drafts_wanted=4)
    driver.run((0, 1), drafts_wanted=4)
    assert len(Tells.shown) == 2, "there is no place for another token"


def test_a_model_is_named_exactly_where_one_is_read(started, files):
    class Model(Tells):
        need = "model"

    globals()["Model"] = Model
    with pytest.raises(ConfigError, match="reads a model of its own"):
        started(Model)
    with pytest.raises(ConfigError, match="reads no model of its own"):
        started(Tells, draft_model=files)


def test_the_runner_keeps_the_ids_that_it_shows(started):
    """What `known` gives cannot be written."""

    class Writes(Tells):
        def guess(self, known, wanted):
            known[0] = 1
            return []

    globals()["Writes"] = Writes
    driver = started(Writes)
    driver.admit(0, PROMPT, GREEDY)
    driver.run((0, 9), drafts_wanted=4)
    table = driver.runner._computer.batch.table
    assert table.tokens[0, :9].tolist() == PROMPT
    assert isinstance(table.tokens, np.ndarray)
