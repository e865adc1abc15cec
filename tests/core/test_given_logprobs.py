"""Log-probabilities that a runner gives: front ends read them by the tokens that were sampled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.step import Logprobs, PromptLogprobs
from framework.engine.remote.messages import Outputs, answer_coder
from framework.errors import EngineDeadError
from framework.testing.ragged import flat

NAN, INF = float("nan"), float("inf")
INT = np.int32


def spoilt(one, change, step):
    """The result of one step goes through `change`."""
    finish, count = one.runner.finish, iter(range(1, 1000))
    one.runner.finish = lambda ticket, late: (
        change(finish(ticket, late)) if next(count) == step else finish(ticket, late)
    )


def newest(**fields):
    return lambda result: replace(result, logprobs=replace(result.logprobs, **fields))


def of_prompt(**fields):
    def change(result):
        parts = (replace(p, logprobs=replace(p.logprobs, **fields)) for p in result.prompt_logprobs)
        return replace(result, prompt_logprobs=tuple(parts))

    return change


def values(value):
    return lambda result: newest(values=np.full_like(result.logprobs.values, value))(result)


EMPTY = Logprobs(
    offsets=np.zeros(2, INT),
    ids=np.zeros(0, INT),
    values=np.zeros(0, np.float32),
    ranks=np.ones(1, INT),
)
CANNOT_BE = [
    newest(ids=np.array([999], INT)),
    newest(ids=np.array([-1], INT)),
    newest(ids=np.array([1000], INT)),
    lambda r: replace(r, logprobs=EMPTY),
    lambda r: replace(r, logprobs=None, logprob_tokens=np.zeros(0, INT)),
    lambda r: replace(r, logprobs=None),
    lambda r: replace(r, logprob_tokens=np.ones(1, INT)),
    lambda r: replace(r, logprobs=flat([1, 1], [-1, -1]), logprob_tokens=np.zeros(2, INT)),
    lambda r: replace(r, logprobs=flat([1, 1], [-1, -1]), logprob_tokens=np.array([1, 0])),
]


@pytest.mark.parametrize("change", CANNOT_BE)
@pytest.mark.parametrize("step", [1, 5])
def test_what_front_ends_could_not_read_is_the_runners_fault(engine, change, step):
    one = engine()
    one.add("a", [1] * 5, 9, logprobs=0)
    one.add("b", [2] * 3, 9)
    spoilt(one, change, step)
    with pytest.raises(EngineDeadError, match="ScriptedRunner gave a result that does not fit"):
        one.run()


OF_A_PROMPT = [
    of_prompt(ids=np.array([1, 1, 1, 2], INT)),
    of_prompt(ids=np.array([1, 1, 1, -1], INT)),
    of_prompt(ids=np.array([1, 1, 1, 1000], INT)),
    lambda r: replace(r, prompt_logprobs=()),
    lambda r: replace(r, prompt_logprobs=(p for p in r.prompt_logprobs)),
]


@pytest.mark.parametrize("change", OF_A_PROMPT)
@pytest.mark.parametrize("count", [0, 3])
def test_what_is_lacking_or_wrong_of_a_prompt_is_the_runners_fault(engine, change, count):
    one = engine()
    one.add("a", [1] * 5, count, prompt_logprobs=0)
    spoilt(one, change, 1)
    with pytest.raises(EngineDeadError, match=r"ScriptedRunner.* prompt"):
        one.run()


@pytest.mark.parametrize("change", [values(NAN), values(INF)])
@pytest.mark.parametrize("step", [1, 5])
def test_who_gets_no_numbers_ends_alone_and_the_runner_is_named(engine, alone, change, step):
    one = engine()
    one.add("a", [1] * 5, 9, logprobs=0)
    one.add("b", [2] * 3, 9)
    spoilt(one, change, step)
    answers = one.run()
    assert answers["a"].reason == "error"
    assert "ScriptedRunner gave log-probabilities" in answers["a"].error
    assert len(answers["a"].tokens) == len(answers["a"].logprobs) == step - 1
    assert answers["b"].tokens == alone([2] * 3, 9).tokens


def test_a_prompt_without_numbers_ends_its_request_alone(engine, alone):
    one = engine()
    one.add("a", [1] * 5, 9, prompt_logprobs=0)
    one.add("b", [2] * 3, 9)
    spoilt(one, of_prompt(values=np.array([-1, NAN, -1, -1], np.float32)), 1)
    answers = one.run()
    assert (answers["a"].reason, answers["a"].prompt_logprobs) == ("error", {})
    assert answers["b"].tokens == alone([2] * 3, 9).tokens


def test_a_token_that_cannot_be_has_minus_infinity(engine):
    one = engine()
    one.add("a", [1] * 5, 9, logprobs=0)
    spoilt(one, values(-INF), 2)
    ends = []
    while one.core.has_work():  # the harness reads finite ones only
        ends += [end.reason for end in one.core.step().finished]
    assert ends == ["length"]


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int64])
def test_accepted_drafts_are_counted_by_integers_of_any_kind(engine, alone, kind):
    one = engine(max_drafts=2, runner={"drafter": lambda request, tokens, wanted: [7] * wanted})
    one.add("a", [1] * 5, 9)
    finish = one.runner.finish

    def changed(ticket, late):
        result = finish(ticket, late)
        return replace(result, accepted=result.accepted.astype(kind))

    one.runner.finish = changed
    assert one.run()["a"].tokens == alone([1] * 5, 9).tokens


def of_kind(kind, result):
    """The result, with each of its integers of another kind."""

    def scores(found):
        whole = {name: getattr(found, name).astype(kind) for name in ("offsets", "ids", "ranks")}
        return None if found is None else replace(found, **whole)

    names = ("token_offsets", "token_ids", "accepted", "draft_offsets", "draft_ids")
    return replace(
        result,
        **{name: getattr(result, name).astype(kind) for name in (*names, "logprob_tokens")},
        logprobs=None if result.logprobs is None else scores(result.logprobs),
        prompt_logprobs=tuple(
            PromptLogprobs(row=kind(p.row), start=kind(p.start), logprobs=scores(p.logprobs))
            for p in result.prompt_logprobs
        ),
        errors={kind(row): sentence for row, sentence in result.errors.items()},
    )


@pytest.mark.parametrize("kind", [np.uint16, np.uint64, np.int64])
@pytest.mark.parametrize("depth", [1, 2])
def test_integers_may_be_of_any_kind_and_the_same_comes_of_them(engine, alone, kind, depth):
    """Also of steps with an error, and with tokens that are dropped, as of one that has ended."""
    stop = alone([3] * 3, 9).tokens[5]

    def made(change):
        one = engine(
            runner={"fail_rows": {(3, 1): "failed"}},
            loop_depth=depth,
            max_num_batched_tokens=16,
        )
        finish, encoder = one.runner.finish, answer_coder()[0]
        one.runner.finish = lambda ticket, late: change(finish(ticket, late))
        one.add("a", [1] * 21, 9, logprobs=0, prompt_logprobs=0)
        one.add("b", [2] * 3, 9, logprobs=0)
        one.add("c", [3] * 3, 9, logprobs=0, stop_ids=(stop,))
        for _ in range(40):
            encoder.encode(Outputs(outputs=one.step()))  # as it goes to another process
        return one.answers

    answers = made(lambda result: of_kind(kind, result))
    assert answers == made(lambda result: result)
    assert sorted(answer.reason for answer in answers.values()) == ["error", "length", "stop"]


@pytest.mark.parametrize("wanted", [0, 2])
def test_more_drafts_than_were_wanted_are_the_runners_fault(engine, wanted):
    one = engine(max_drafts=wanted)
    one.add("a", [1] * 5, 9)
    drafts = {"draft_ids": np.ones(3, INT), "draft_offsets": np.array([0, 3], INT)}
    spoilt(one, lambda result: replace(result, **drafts), 1)
    with pytest.raises(EngineDeadError, match=f"3 drafts of a row, where {wanted} were wanted"):
        one.run()
