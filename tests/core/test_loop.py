"""The loop under the scripted runner: same tokens whatever the budget, depth or pool."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.contracts.messages import EngineInput
from framework.contracts.sampling import SamplingParams
from framework.core.policies import Priority
from framework.errors import ConfigError, EngineDeadError, InputError
from framework.testing import from_outputs


def prompts(count, seed=0, longest=30):
    rng = random.Random(seed)
    return [[rng.randrange(1000) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def test_one_request_gets_the_tokens_of_the_script(engine):
    one = engine(runner={"script": from_outputs({"a": [5, 6, 7]})})
    one.add("a", [1, 2, 3], max_tokens=3)
    answer = one.run()["a"]
    assert (answer.tokens, answer.reason) == ([5, 6, 7], "length")


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [1, 3, 7, 2048])
@pytest.mark.parametrize("num_pages", [13, 20, 64])
def test_tokens_do_not_depend_on_depth_budget_or_pool(engine, alone, depth, budget, num_pages):
    many = engine(
        runner={"num_pages": num_pages},
        max_num_batched_tokens=budget,
        loop_depth=depth,
        max_num_seqs=5,
    )
    asked = prompts(12)
    for index, prompt in enumerate(asked):
        many.add(str(index), prompt)
    answers = many.run()
    for index, prompt in enumerate(asked):
        assert answers[str(index)].tokens == alone(prompt).tokens
        assert answers[str(index)].reason == "length"


def test_depth_two_keeps_two_steps_in_flight_and_gives_the_same_tokens(engine):
    results = []
    for depth in (1, 2):
        one = engine(runner={"delay": 0.001}, loop_depth=depth)
        for index, prompt in enumerate(prompts(4)):
            one.add(str(index), prompt, max_tokens=20)
        one.step()
        assert len(one.runner.plans) == depth
        results.append({name: answer.tokens for name, answer in one.run().items()})
    assert results[0] == results[1]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_small_pool_preempts_and_loses_no_token(engine, alone, depth):
    many = engine(runner={"num_pages": 12}, loop_depth=depth)
    for index, prompt in enumerate(prompts(8, longest=12)):
        many.add(str(index), prompt, max_tokens=20)
    answers = many.run()
    assert many.core.stats.preemptions > 0
    for index, prompt in enumerate(prompts(8, longest=12)):
        assert answers[str(index)].tokens == alone(prompt, 20).tokens


def test_without_chunks_a_prompt_is_computed_whole(engine):
    one = engine(enable_chunked_prefill=False, max_num_batched_tokens=64, max_model_len=64)
    for index, prompt in enumerate(prompts(6)):
        one.add(str(index), prompt)
    one.run()
    for plan in one.runner.plans:
        for request in plan.admitted:
            row = plan.slots.tolist().index(request.slot)
            assert plan.computed[row] + plan.num_new[row] == len(request.tokens)


def test_without_chunks_a_budget_below_the_longest_prompt_is_refused(engine):
    with pytest.raises(ConfigError, match="max_num_batched_tokens"):
        engine(enable_chunked_prefill=False, max_num_batched_tokens=8)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_whole_prompt_hit_still_computes_a_token(engine, depth, extra):
    length = 12 + extra
    one = engine(loop_depth=depth)
    prompt = list(range(length))
    for name in ("cold", "warm"):
        one.add(name, prompt)
        one.run()
    cold, warm = one.answers["cold"], one.answers["warm"]
    assert warm.tokens == cold.tokens
    assert (cold.cached, warm.cached) == (0, (length - 1) // 4 * 4)


def test_a_prefix_is_shared_by_requests_that_run_together(engine):
    one = engine()
    one.add("first", [1] * 9, max_tokens=20)
    one.step()
    one.add("second", [1] * 9, max_tokens=20)
    one.step()
    assert one.core.stats.pages_used == 3 + 1  # two shared, one page of its own each
    answers = one.run()
    assert answers["first"].tokens == answers["second"].tokens
    assert answers["second"].cached == 8


def test_salts_keep_the_prefix_cache_apart(engine):
    one = engine()
    for name, salt in (("a", "x"), ("b", "y"), ("c", "x"), ("d", None)):
        one.add(name, [1] * 9, salt=salt)
        one.run()
    assert [one.answers[name].cached for name in "abcd"] == [0, 0, 8, 0]


def test_an_adapter_loaded_again_does_not_hit_the_old_pages(engine):
    one = engine(runner={"features": frozenset(("adapters",))})
    for name, adapter in (("a", 1), ("b", 1), ("c", 2), ("d", None)):
        one.add(name, [1] * 9, adapter=adapter)
        one.run()
    assert [one.answers[name].cached for name in "abcd"] == [0, 8, 0, 0]


def test_clearing_the_prefix_cache_while_requests_run_loses_nothing(engine, alone):
    one = engine()
    one.add("a", [1] * 9, max_tokens=20)
    one.step()
    assert one.core.reset_prefix_cache()
    assert one.run()["a"].tokens == alone([1] * 9, 20).tokens
    one.add("b", [1] * 9)
    assert one.run()["b"].cached == 0


def test_output_is_hit_by_a_conversation_that_goes_on(engine):
    one = engine()
    one.add("turn", [1] * 6, max_tokens=7)
    first = one.run()["turn"].tokens
    one.add("next", [1] * 6 + first + [2, 3])
    assert one.run()["next"].cached == 12


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("length", [49, 50, 51, 1000])
def test_what_can_never_fit_is_refused_and_blocks_nobody(engine, depth, length):
    one = engine(runner={"num_pages": 14, "page_tokens": 4}, loop_depth=depth)
    assert one.core.max_model_len == 52
    if length + 8 > 52:
        with pytest.raises(InputError, match="cannot fit"):
            one.add("long", [1] * length)
    one.add("short", [1, 2])
    assert one.run()["short"].reason == "length"


def test_a_request_of_the_whole_capacity_is_served(engine):
    one = engine(runner={"num_pages": 14, "page_tokens": 4})
    one.add("all", [1] * 44, max_tokens=8)
    one.add("short", [1, 2])
    answers = one.run()
    assert [len(answers[name].tokens) for name in ("all", "short")] == [8, 8]


def test_a_length_that_model_or_cache_cannot_hold_is_refused_at_the_start(engine):
    with pytest.raises(ConfigError, match="exceeds the cache"):
        engine(runner={"num_pages": 14}, max_model_len=53)
    with pytest.raises(ConfigError, match="exceeds the model"):
        engine(runner={"max_model_len": 40}, max_model_len=41)
    with pytest.raises(ConfigError, match="page size"):
        engine(page_tokens=32)
    with pytest.raises(ConfigError, match="in flight"):
        engine(loop_depth=3)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("minimum", [0, 1, 3, 6])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 6])
def test_a_stop_id_counts_only_after_min_tokens(engine, depth, minimum, at):
    """The sampler masks stop ids while fewer than min_tokens outputs exist; a stop id that
    comes all the same (the script sends one) does not end the request."""
    given = [1, 1, 1, 1, 1, 1]
    given[at - 1] = 9
    one = engine(runner={"script": from_outputs({"a": given})}, loop_depth=depth)
    one.add("a", [1, 2], max_tokens=6, min_tokens=minimum, stop_ids=(8, 9))
    answer = one.run()["a"]
    if at - 1 >= minimum:
        assert (answer.tokens, answer.reason, answer.stop) == (given[:at], "stop", 9)
    else:
        assert (answer.tokens, answer.reason, answer.stop) == (given, "length", None)


def test_many_stop_ids_are_all_seen(engine):
    one = engine(runner={"script": from_outputs({"a": [1, 2, 77]}, default=3)})
    one.add("a", [1, 2], max_tokens=6, stop_ids=tuple(range(70, 80)))
    assert one.run()["a"].tokens == [1, 2, 77]


def test_a_stop_id_in_the_last_place_is_a_stop(engine):
    one = engine(runner={"script": from_outputs({"a": [1, 9]})})
    one.add("a", [1, 2], max_tokens=2, stop_ids=(9,))
    assert one.run()["a"].reason == "stop"


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("when", range(8))
def test_an_abort_at_any_time_gives_everything_back(engine, depth, when):
    one = engine(loop_depth=depth, max_num_batched_tokens=5, max_num_seqs=2)
    for name in "abc":
        one.add(name, [1] * 9, max_tokens=4)
    for _ in range(when):
        one.step()
    one.core.abort(["a", "c", "unknown"])
    answers = one.run()
    assert answers["b"].reason == "length"
    for name in "ac":
        assert answers[name].reason in ("abort", "length")
    if when == 0:
        assert answers["a"].reason == answers["c"].reason == "abort"


def test_a_request_id_in_use_is_refused(engine):
    one = engine()
    one.add("a", [1])
    with pytest.raises(InputError, match="in use"):
        one.add("a", [1])


@pytest.mark.parametrize("bad", [[-1], [1000], [3, 2**31 - 1]])
def test_ids_outside_the_vocabulary_are_refused(engine, bad):
    one = engine()
    with pytest.raises(InputError, match="outside the vocabulary"):
        one.add("a", bad)
    one.add("b", [1])
    assert one.run()["b"].reason == "length"


def test_a_need_that_the_runner_did_not_declare_is_refused(engine):
    one = engine(runner={"features": frozenset()})
    with pytest.raises(InputError, match="does not serve") as error:
        one.add("a", [1], logprobs=1)
    assert error.value.parameter == "logprobs"


def test_an_error_in_one_row_ends_that_request_alone(engine, alone):
    one = engine(runner={"fail_rows": {(3, 1): "logits are NaN"}})
    for name, token in (("a", 1), ("b", 2), ("c", 3)):
        one.add(name, [token] * 5)
    answers = one.run()
    assert (answers["b"].reason, answers["b"].error) == ("error", "logits are NaN")
    assert answers["a"].tokens == alone([1] * 5).tokens
    assert answers["c"].tokens == alone([3] * 5).tokens


@pytest.mark.parametrize("depth", [1, 2])
def test_lost_pages_are_computed_again(engine, alone, depth):
    lost = {4: range(1, 4)}
    one = engine(runner={"lose_pages": lost}, loop_depth=depth)
    one.add("a", [1] * 9, max_tokens=12)
    one.add("b", [2] * 9, max_tokens=12)
    answers = one.run()
    assert one.core.stats.preemptions > 0
    assert answers["a"].tokens == alone([1] * 9, 12).tokens
    assert answers["b"].tokens == alone([2] * 9, 12).tokens


@pytest.mark.parametrize("depth", [1, 2])
def test_each_who_reads_one_of_several_lost_pages_computes_again_and_no_other(engine, alone, depth):
    one = engine(loop_depth=depth, runner={"num_pages": 40})
    for number in range(5):
        one.add(str(number), [number] * 9, 12)
    for _ in range(3):
        one.step()
    kv = one.core._state.kv
    lost = [int(kv.tables[0, one.core._state.requests[name].slot, 1]) for name in "024"]
    one.runner.lose_pages = {one.runner.steps + 1: lost}
    answers = one.run()
    assert one.core.stats.preemptions == 3
    for number in range(5):
        assert answers[str(number)].tokens == alone([number] * 9, 12).tokens


def test_a_runner_that_fails_kills_the_engine_with_one_clear_error(engine):
    one = engine()
    one.add("a", [1])
    one.runner.finish = lambda ticket, late: 1 / 0
    with pytest.raises(EngineDeadError, match="ZeroDivisionError"):
        one.core.step()
    with pytest.raises(EngineDeadError, match="has stopped"):
        one.core.step()
    with pytest.raises(EngineDeadError, match="has stopped"):
        one.core.add(
            EngineInput(
                request_id="b",
                tokens=np.array([1], np.int32),
                sampling=SamplingParams(),
                seed=0,
                max_total=2,
            )
        )


def test_a_request_whose_deadline_passes_in_line_ends_with_an_error(engine):
    one = engine(max_num_seqs=1)
    one.add("runs", [1], max_tokens=3)
    one.add("late", [2], deadline=0.0)
    one.add("patient", [2], deadline=60.0)
    answers = one.run()
    assert answers["late"].reason == "error"
    assert "deadline" in answers["late"].error
    assert answers["runs"].reason == answers["patient"].reason == "length"


def test_priority_runs_lower_values_first_and_preempts_the_highest(engine):
    one = engine(policy=Priority(), max_num_seqs=1)
    for name, priority in (("low", 5), ("high", -1), ("mid", 0)):
        one.add(name, [1], max_tokens=2, priority=priority)
    ends = []
    while one.core.has_work():
        outputs = one.step()
        ends += [outputs.request_ids[f.row] for f in outputs.finished]
    assert ends == ["high", "mid", "low"]


def test_equal_priorities_are_served_in_order_of_arrival(engine):
    one = engine(policy=Priority(), max_num_seqs=1)
    for name in "cab":
        one.add(name, [1], max_tokens=1)
    ends = []
    while one.core.has_work():
        outputs = one.step()
        ends += [outputs.request_ids[f.row] for f in outputs.finished]
    assert ends == ["c", "a", "b"]


@pytest.mark.parametrize("budget", [3, 100])
def test_scoring_a_prompt_gives_its_log_probabilities_and_no_token(engine, budget):
    """Its last token is not computed: nothing would come of it."""
    for length in (1, 2, 5, 9):
        one = engine(max_num_batched_tokens=budget)
        one.add("a", list(range(length)), max_tokens=0, prompt_logprobs=0)
        answer = one.run()["a"]
        assert (answer.tokens, answer.reason) == ([], "length")
        assert answer.prompt_logprobs == {p: -p for p in range(1, length)}
        assert sum(plan.num_tokens for plan in one.runner.plans) == max(length - 1, 1)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [3, 100])
def test_prompt_log_probabilities_survive_chunks_hits_and_preemption(engine, depth, budget):
    one = engine(
        runner={"num_pages": 12}, loop_depth=depth, max_num_batched_tokens=budget, max_num_seqs=4
    )
    for turn in range(2):
        for index in range(4):
            name = f"{turn}{index}"
            one.add(name, [index] * 9, max_tokens=16, prompt_logprobs=0, logprobs=0)
        one.run()
    assert one.core.stats.preemptions > 0
    for answer in one.answers.values():
        assert answer.prompt_logprobs == {p: -p for p in range(1, 9)}
        assert answer.logprobs == [-p for p in range(9, 25)]


@pytest.mark.parametrize("quality", ["good", "bad", "mixed"])
@pytest.mark.parametrize("depth", [1, 2])
def test_drafts_change_the_number_of_steps_and_no_token(engine, alone, quality, depth):
    truth = [(7 * k) % 50 for k in range(40)]

    def drafter(request, tokens, wanted):
        at = len(tokens) - request.num_prompt
        good = truth[at : at + wanted]
        if quality == "bad":
            return [t + 1 for t in good]
        return [t + (k % 2 if quality == "mixed" else 0) for k, t in enumerate(good)]

    script = from_outputs({"a": truth, "b": truth}, default=99)
    one = engine(
        runner={"script": script, "drafter": drafter},
        max_drafts=3,
        loop_depth=depth,
        max_num_batched_tokens=9,
    )
    one.add("a", [1] * 6, max_tokens=30)
    one.add("b", [1] * 6, max_tokens=40, stop_ids=(truth[20],))
    answers = one.run()
    stop = truth.index(truth[20])
    assert answers["a"].tokens == truth[:30]
    assert answers["b"].tokens == truth[: stop + 1]
    assert answers["b"].reason == "stop"
    if quality == "good":
        assert len(one.runner.plans) < 20


def test_of_two_stops_in_one_step_the_first_ends_the_request(engine):
    truth = [1, 2, 8, 3, 9, 4, 4, 4]
    one = engine(
        runner={
            "script": from_outputs({"a": truth}),
            "drafter": lambda r, tokens, n: truth[len(tokens) - r.num_prompt :][:n],
        },
        max_drafts=7,
    )
    one.add("a", [5], max_tokens=8, stop_ids=(9, 8), logprobs=0)
    answer = one.run()["a"]
    assert (answer.tokens, answer.stop) == ([1, 2, 8], 8)
    assert answer.logprobs == [-1, -2, -3]


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    depth=st.sampled_from([1, 2]),
    budget=st.integers(1, 40),
    num_pages=st.integers(11, 40),
    slots=st.integers(1, 6),
    drafts=st.sampled_from([0, 2]),
    caching=st.booleans(),
)
def test_any_schedule_gives_every_request_its_own_tokens(
    engine, data, depth, budget, num_pages, slots, drafts, caching
):
    """Random arrivals, priorities, aborts: sums of tokens stay inside the budget, counts are
    exact after every step, tokens equal those of the request alone."""
    one = engine(
        policy=Priority(),
        runner={"num_pages": num_pages, "drafter": lambda r, tokens, n: tokens[-n:]},
        loop_depth=depth,
        max_num_batched_tokens=budget,
        max_num_seqs=slots,
        max_drafts=drafts,
        enable_prefix_caching=caching,
    )
    asked = {}
    for number in range(data.draw(st.integers(1, 10))):
        length = data.draw(st.integers(1, 30))
        prompt = [data.draw(st.sampled_from([1, 2]))] * (length // 2) + [number] * (length % 2 + 1)
        asked[str(number)] = prompt
        one.add(str(number), prompt, data.draw(st.integers(1, 9)), priority=number % 3 - 1)
        for _ in range(data.draw(st.integers(0, 3))):
            one.step()
        if data.draw(st.integers(0, 4)) == 0:
            one.core.abort([str(data.draw(st.integers(0, number)))])
    answers = one.run()
    for name, prompt in asked.items():
        answer = answers[name]
        true = engine(runner={"num_pages": 200})
        true.add("x", prompt, 9)
        whole = true.run()["x"].tokens
        assert answer.tokens == whole[: len(answer.tokens)]
        assert answer.reason in ("length", "abort")


def test_what_is_known_of_a_prompt_is_not_asked_for_again(engine):
    """Four positions of the prompt were reported when the request went back to the line."""
    one = engine(max_num_batched_tokens=4)
    one.add("a", list(range(12)), max_tokens=2, prompt_logprobs=0)
    one.step()
    assert sorted(one.answers["a"].prompt_logprobs) == [1, 2, 3, 4]
    one.core.weights_changed()
    one.run()
    entered = [request.prompt_logprobs_from for p in one.runner.plans for request in p.admitted]
    assert entered == [1, 5]
    assert sorted(one.answers["a"].prompt_logprobs) == list(range(1, 12))
