"""What belongs to one request alone: not to others of the step, nor to the next in its slot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.participant import External, SchedulerParticipant
from framework.contracts.step import NOTHING_LATE
from framework.core.policies import FirstComeFirstServed
from framework.errors import EngineDeadError
from framework.testing import expected_tokens, from_outputs
from framework.testing.ragged import flat


def changed(one, change):
    """The runner's results go through `change(plan, result)`."""
    finish = one.runner.finish
    one.runner.finish = lambda ticket, late=NOTHING_LATE: change(
        one.runner._waiting[0], finish(ticket, late)
    )


@pytest.mark.parametrize("others", [False, True])
def test_who_is_aborted_is_told_how_much_was_cached(engine, others):
    one = engine()
    one.add("first", [1] * 9, 2)
    one.run()
    one.add("again", [1] * 9, 20)
    if others:
        one.add("other", [2] * 9, 5)
    one.step()
    one.core.abort(["again"])
    one.answers["again"].cached = 0
    outputs = one.step()
    assert (np.diff(outputs.token_offsets) >= 0).all()
    assert outputs.token_offsets[-1] == len(outputs.token_ids)
    assert one.answers["again"].cached == 8
    one.run()


def test_a_prompt_of_one_token_in_flight_leaves_others_no_more_than_the_budget(engine):
    """All that it may compute is planned: it wants nothing, and no less than nothing."""
    one = engine(loop_depth=2, max_num_batched_tokens=4)
    one.add("scored", [5], 0, prompt_logprobs=0)
    one.add("short", [1] * 2)
    one.add("long", [2] * 20)
    assert one.run()["scored"].reason == "length"
    assert [plan.num_tokens for plan in one.runner.plans[:2]] == [4, 4]


def test_min_tokens_count_from_the_prompt_also_after_a_preemption(engine):
    one = engine(
        runner={"script": from_outputs({"a": [1, 2, 3, 4, 9, 6], "b": [0] * 6}), "num_pages": 6},
        max_model_len=16,
    )
    one.add("b", [1] * 9, 6)
    one.add("a", [2] * 2, 6, stop_ids=(9,), min_tokens=3)
    answer = one.run()["a"]
    assert one.core.stats.preemptions > 0
    assert (answer.reason, answer.tokens) == ("stop", [1, 2, 3, 4, 9])


def test_many_stop_ids_of_one_request_are_none_of_another(engine):
    one = engine(runner={"script": from_outputs({"a": [0] * 8, "b": [7] * 8})})
    one.add("a", [1], 8)
    one.step()
    one.add("b", [2], 8, stop_ids=tuple(range(10, 20)))
    answers = one.run()
    assert answers["a"].reason == answers["b"].reason == "length"


def test_the_next_request_of_a_slot_does_not_verify_the_drafts_of_the_last(engine):
    """It owns the slot for a while before it is computed."""

    class Loading(SchedulerParticipant):
        def external_prefix(self, request, local_hit):
            return External(2, lambda: 0)

    one = engine(
        participants={"loading": Loading()},
        runner={"drafter": lambda *_: [1, 2]},
        max_drafts=2,
        max_num_seqs=1,
    )
    one.add("gone", [1] * 3, 9)
    one.step()
    one.core.abort(["gone"])
    one.add("next", [2] * 3, 9, extras={"loading": b""})
    one.step()
    one.step()
    assert one.runner.plans[-2].admitted[0].request_id == "next"
    assert one.runner.plans[-1].num_new.tolist() == [3]
    assert one.runner.plans[-1].draft_counts.tolist() == [0]
    one.run()


def test_a_stop_id_at_the_limit_is_told_as_one_while_another_is_in_its_prompt(engine):
    script = from_outputs({"a": [1, 9], "b": [1] * 8})
    one = engine(runner={"script": script}, max_num_batched_tokens=4)
    one.add("a", [1], 2, stop_ids=(9,))
    one.step()
    one.add("b", [2] * 9)
    one.step()
    assert one.runner.plans[-1].wants_logits.tolist() == [True, False]
    assert one.answers["a"].reason == "stop"
    one.run()


def test_drafts_of_a_prompt_that_is_not_computed_yet_are_not_kept(engine):
    one = engine(max_drafts=1, max_num_batched_tokens=4)

    def drafting(plan, result):
        ends = np.arange(plan.num_rows + 1, dtype=np.int32)
        return replace(result, draft_ids=ends[1:], draft_offsets=ends)

    changed(one, drafting)
    one.add("a", [1] * 10, 4)
    assert one.run()["a"].tokens == expected_tokens([1] * 10, 4)
    assert [plan.num_new.tolist() for plan in one.runner.plans[:3]] == [[4], [4], [2]]


@pytest.mark.parametrize("start", [2, 3])
def test_prompt_logprobs_with_a_gap_end_the_engine(engine, start):
    one = engine()
    changed(
        one,
        lambda plan, result: replace(
            result,
            prompt_logprobs=tuple(
                replace(part, start=start, logprobs=flat([1], [-1]))
                for part in result.prompt_logprobs
            ),
        ),
    )
    one.add("a", [1] * 6, 2, prompt_logprobs=0)
    with pytest.raises(EngineDeadError, match=r"ScriptedRunner gave prompt log-prob.* gap"):
        one.step()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_policy_sees_counts_as_if_the_steps_in_flight_had_ended(engine, depth):
    class Seeing(FirstComeFirstServed):
        keys_are_fixed = False

        def keys(self, requests):
            seen.append((requests.known.tolist(), requests.computed.tolist()))
            return super().keys(requests)

    seen: list[tuple[list[int], list[int]]] = []
    one = engine(policy=Seeing(), loop_depth=depth)
    one.add("a", [1] * 3, 4)
    one.run()
    assert seen[:4] == [([3], [0]), ([4], [3]), ([5], [4]), ([6], [5])]


def test_pages_that_one_lacks_in_a_group_are_not_given_to_another_that_lacks_none(engine):
    """In one step, of the group with long pages: two for the prompt, none for the one beside it,
    which lacks a page of the other group."""
    heads = {"head_size": 1, "head_size_v": 1, "dtype": "float32"}
    layers = {f"{n}": FullAttentionSpec(num_kv_heads=n, **heads) for n in (1, 4)}
    one = engine(runner={"layers": layers, "page_tokens": 4}, max_num_batched_tokens=36)
    assert [group.page_tokens for group in one.core.cache_plan.groups] == [16, 4]
    one.add("short", [1] * 4, 5)
    one.add("long", [2] * 64, 5)
    one.step()
    one.step()
    assert [plan.num_new.tolist() for plan in one.runner.plans] == [[4, 32], [1, 32]]
    assert [pages.counts.tolist() for pages in one.runner.plans[1].pages] == [[2], [1, 8]]
    answers = one.run()
    assert answers["short"].tokens == expected_tokens([1] * 4, 5)
    assert answers["long"].tokens == expected_tokens([2] * 64, 5)
