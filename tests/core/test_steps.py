"""What a step in flight may still touch, and what a step leaves behind."""

from __future__ import annotations

import time

import pytest

from framework.contracts.participant import READY, External, Hold, SchedulerParticipant, Wait
from framework.core.policies import FirstComeFirstServed, Priority
from framework.testing import from_outputs


class Holder(SchedulerParticipant):
    """Holds pages, but no longer than it is asked."""

    def release(self, request):
        return Hold(lambda: True)


def pages_of(plan):
    return set(plan.pages[0].ids.tolist())


@pytest.mark.parametrize("held", [False, True])
def test_slot_and_pages_of_a_step_in_flight_are_given_to_nobody(engine, held):
    """At depth 2 the next plan is made before the step has ended; the one after may use them."""
    one = engine(participants={"hold": Holder()}, loop_depth=2, max_num_seqs=2)
    one.add("gone", [1] * 6, extras={"hold": b""} if held else {})
    one.step()
    first = one.runner.plans[0]
    assert len(one.runner.plans) == 2
    one.core.abort(["gone"])
    one.add("next", [2] * 6, max_tokens=2)
    one.step()
    plan = one.runner.plans[2]
    assert plan.admitted[0].slot != first.admitted[0].slot
    assert not pages_of(plan) & pages_of(first)
    one.run()
    one.add("later", [3] * 6, max_tokens=20)
    one.add("too", [4] * 6, max_tokens=2)
    one.run()
    slots = {request.slot for plan in one.runner.plans[3:] for request in plan.admitted}
    assert first.admitted[0].slot in slots


def test_nobody_starts_in_a_step_that_preempts(engine):
    """A victim that came back at once would take the pages it was to leave to others."""
    one = engine(runner={"num_pages": 12}, max_num_batched_tokens=6)
    for index in range(8):
        one.add(str(index), [index] * 5, max_tokens=20)
    while one.core.has_work():
        before = one.core.stats.preemptions
        one.step()
        if one.core.stats.preemptions > before:
            assert one.runner.plans[-1].admitted == ()
    assert one.core.stats.preemptions > 0


def test_a_preemption_does_not_change_what_was_told_of_the_prefix_cache(engine):
    """A request that comes back hits its own pages, which is no merit of the cache."""
    one = engine(runner={"num_pages": 12})
    for index in range(4):
        one.add(str(index), [index] * 9, max_tokens=16)
    answers = one.run()
    stats = one.core.stats
    assert stats.preemptions > 0
    assert [answer.cached for answer in answers.values()] == [0] * 4
    assert (stats.prefix_queries, stats.prefix_hits) == (4 * 9, 0)


def test_what_a_row_with_an_error_computed_is_never_hit(engine):
    one = engine(runner={"fail_rows": {(1, 0): "logits are NaN"}})
    for name in ("bad", "next", "last"):
        one.add(name, [1] * 5)
        one.run()
    assert one.answers["bad"].reason == "error"
    assert [one.answers[name].cached for name in ("next", "last")] == [0, 4]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_policy_hears_of_every_token_that_is_planned(engine, depth):
    class Accounts(FirstComeFirstServed):
        seen: list[tuple[list[int], list[int]]]

        def served(self, requests, tokens):
            self.seen.append((requests.arrival.tolist(), tokens.tolist()))

    policy = Accounts()
    policy.seen = []
    one = engine(policy=policy, loop_depth=depth, max_num_batched_tokens=7)
    for index in range(3):
        one.add(str(index), [index] * 6, max_tokens=20)
    one.run()
    assert [tokens for _, tokens in policy.seen] == [p.num_new.tolist() for p in one.runner.plans]
    assert policy.seen[0] == ([1, 2], [6, 1])


def test_among_equals_who_came_first_goes_first_though_it_started_later(engine):
    awake: list[bool] = []

    class Late(SchedulerParticipant):
        def admit(self, request):
            return READY if awake else Wait("compiling", lambda: bool(awake))

    one = engine(participants={"late": Late()}, policy=Priority())
    one.add("first", [1], extras={"late": b""})
    one.add("second", [2])
    one.step()
    awake.append(True)
    one.step()
    slots = [request.slot for plan in one.runner.plans for request in plan.admitted]
    one.step()
    assert one.runner.plans[-1].slots.tolist() == slots[::-1]


def test_pages_are_taken_from_the_lowest_priority_not_from_the_last_arrival(engine):
    one = engine(policy=Priority(), runner={"num_pages": 8})
    one.add("low", [1] * 5, max_tokens=16, priority=5)
    one.add("high", [2] * 5, max_tokens=16)
    one.run()
    admitted = [request.request_id for plan in one.runner.plans for request in plan.admitted]
    assert one.core.stats.preemptions > 0
    assert (admitted.count("high"), admitted.count("low")) == (1, 1 + one.core.stats.preemptions)


def test_a_deadline_ends_whoever_waits_in_line_or_aside_and_nobody_who_runs(engine):
    class Never(SchedulerParticipant):
        def admit(self, request):
            return Wait("for ever", lambda: False)

    one = engine(participants={"never": Never()}, max_num_seqs=1)
    one.add("aside", [2], deadline=60.0, extras={"never": b""})
    one.add("runs", [1], deadline=60.0)
    one.add("in line", [3], deadline=60.0)
    one.add("patient", [4], deadline=7200.0)
    one.step()
    now = time.monotonic()
    one.core._scheduler._clock = lambda: now + 3600
    answers = one.run()
    reasons = {name: answer.reason for name, answer in answers.items()}
    assert reasons == {"runs": "length", "aside": "error", "in line": "error", "patient": "length"}
    assert "deadline" in answers["aside"].error


def test_keys_that_move_order_the_running_and_the_line_anew_in_every_step(engine):
    class Turning(FirstComeFirstServed):
        keys_are_fixed = False
        sign = 1.0

        def keys(self, requests):
            return requests.arrival * self.sign

    policy = Turning()
    one = engine(policy=policy, max_num_seqs=2)
    for name in "abcd":
        one.add(name, [1], max_tokens=4)
    one.step()
    one.step()
    policy.sign = -1.0
    one.step()
    first, second = one.runner.plans[1:]
    assert second.slots.tolist() == first.slots.tolist()[::-1]
    one.run()
    admitted = [request.request_id for plan in one.runner.plans for request in plan.admitted]
    assert admitted == ["a", "b", "d", "c"]


def drafts_of(outputs):
    """A runner that drafts exactly what it will say."""
    return {
        "script": from_outputs(outputs),
        "drafter": lambda r, tokens, n: outputs[r.request_id][len(tokens) - r.num_prompt :][:n],
    }


def test_rows_that_stop_at_different_tokens_keep_their_own_stops_and_log_probabilities(engine):
    outputs = {"c": [3] * 6, "a": [1, 8, 1, 1, 1, 1], "b": [2, 2, 2, 9, 2, 2]}
    one = engine(runner=drafts_of(outputs), max_drafts=5)
    for name in outputs:
        one.add(name, [5], max_tokens=6, stop_ids=(8, 9), logprobs=0)
    answers = one.run()
    assert len(one.runner.plans) == 2
    assert [answer.tokens for answer in answers.values()] == [[3] * 6, [1, 8], [2, 2, 2, 9]]
    assert [answer.stop for answer in answers.values()] == [None, 8, 9]
    for answer in answers.values():
        assert answer.logprobs == [-p for p in range(1, len(answer.tokens) + 1)]


def test_drafts_and_those_of_them_that_were_accepted_are_counted_by_place(engine):
    outputs = {"a": [1, 2, 3, 4, 5, 6], "b": [7, 7, 7, 7, 7, 7]}
    wrong = {"a": [1, 2, 9, 4, 5, 6], "b": [7, 7, 7, 7, 7, 7]}
    one = engine(
        runner={"script": from_outputs(outputs), "drafter": drafts_of(wrong)["drafter"]},
        max_drafts=3,
    )
    for name in outputs:
        one.add(name, [5], max_tokens=6)
    assert {name: answer.tokens for name, answer in one.run().items()} == outputs
    stats = one.core.stats
    # a: 2 9 4, of which one is accepted, then 4 5, of which both are; the last is never a draft.
    # b: 7 7 7, all accepted.
    assert (stats.drafted, stats.drafts, stats.accepted) == (3, 8, (3, 2, 1))


def test_pages_beyond_a_stop_inside_drafts_get_no_name(engine):
    """They hold tokens that the request never had."""
    one = engine(runner=drafts_of({"a": [1, 2, 9, 4, 5, 6, 7, 8, 1]}), max_drafts=8)
    one.add("a", [5], max_tokens=9, stop_ids=(9,))
    assert one.run()["a"].tokens == [1, 2, 9]
    assert one.core._state.kv.pool.num_hashed == 1


def test_a_slot_does_not_keep_the_stop_ids_of_the_request_before(engine):
    outputs = {"a": [9], "b": [7, 8, 9]}
    one = engine(runner={"script": from_outputs(outputs)}, max_num_seqs=1)
    one.add("a", [5], max_tokens=3, stop_ids=(7, 8, 9))
    one.add("b", [5], max_tokens=3)
    answers = one.run()
    assert (answers["a"].tokens, answers["b"].tokens) == ([9], [7, 8, 9])


@pytest.mark.parametrize("depth", [1, 2])
def test_every_request_that_entered_a_slot_is_released_once(engine, depth):
    one = engine(runner={"num_pages": 12}, loop_depth=depth)
    for index in range(6):
        one.add(str(index), [index] * 5, max_tokens=12)
    one.run()
    one.add("last", [1])
    one.step()
    entered = [(r.slot, r.generation) for plan in one.runner.plans for r in plan.admitted]
    left = [pair for plan in one.runner.plans for pair in plan.released]
    assert sorted(left) == sorted(entered[:-1])


@pytest.mark.parametrize("watermark", [0.0, 0.5])
def test_a_prompt_that_needs_every_page_starts_at_once(engine, watermark):
    one = engine(runner={"num_pages": 14}, watermark=watermark)
    one.add("all", [1] * 51, max_tokens=1)
    assert one.run(2)["all"].reason == "length"


def test_a_deadline_ends_a_request_whose_pages_never_arrive(engine):
    """It owns a slot and pages, but it waits; both are free again once the connector lets go."""

    class Never(SchedulerParticipant):
        def external_prefix(self, request, local_hit):
            return External(4, lambda: None)

    now = [0.0]
    one = engine(participants={"never": Never()}, clock=lambda: now[0])
    one.add("a", [1] * 9, deadline=5.0, extras={"never": b""})
    for _ in range(3):
        one.step()
    assert one.core.stats.loading == 1
    now[0] = 6.0
    answers = one.run()
    assert answers["a"].reason == "error"
    assert "deadline" in answers["a"].error


@pytest.mark.parametrize(("offered", "come"), [(3, 14), (0, 14), (-3, 14), (3, -2)])
def test_more_tokens_than_were_offered_do_not_arrive(engine, alone, offered, come):
    """What nobody wrote would be read, and hit by others under the name of the prompt; nor do
    fewer than none."""
    one = None

    class Boaster(SchedulerParticipant):
        def external_prefix(self, request, local_hit):
            def arrived():
                if not one.runner.holds(request.id):
                    return None
                one.runner.fill(request.id, local_hit, local_hit + max(offered, 0))
                return come

            return External(offered, arrived)

    one = engine(participants={"boaster": Boaster()})
    one.add("a", [1] * 17, extras={"boaster": b""})
    answers = one.run()
    one.add("b", [1] * 17)
    assert one.run()["b"].tokens == answers["a"].tokens == alone([1] * 17).tokens
    computed = [int(plan.computed[0]) for plan in one.runner.plans if plan.num_rows]
    assert computed[0] == (max(offered, 0) if come > 0 else 0)


def test_drafts_take_no_token_of_the_budget_that_another_row_needs(engine):
    outputs = {name: [1, 2, 3, 4, 5, 6, 7, 8] for name in "abcd"}
    one = engine(runner=drafts_of(outputs), max_drafts=3, max_num_batched_tokens=6)
    for name in outputs:
        one.add(name, [5], max_tokens=8)
    one.step()
    one.step()
    plan = one.runner.plans[-1]
    assert plan.num_new.tolist() == [3, 1, 1, 1], "two tokens are left for drafts of the first"
    assert plan.draft_counts.tolist() == [2, 0, 0, 0]
    assert {name: answer.tokens for name, answer in one.run().items()} == outputs


def test_nobody_is_preempted_for_drafts_or_room_ahead(engine):
    outputs = {"a": [1, 2, 3, 4, 5, 6], "b": [7, 8]}
    for more in ({"max_drafts": 3}, {"lookahead": 4}):
        # A page for each, and the null page; a needs another one once b has ended.
        one = engine(runner={**drafts_of(outputs), "num_pages": 3}, **more)
        for name, tokens in outputs.items():
            one.add(name, [5, 5], max_tokens=len(tokens))
        assert {name: answer.tokens for name, answer in one.run().items()} == outputs
        assert one.core.stats.preemptions == 0


def test_there_is_room_ahead_where_pages_are_free_and_none_past_the_end(engine):
    one = engine(runner={"script": from_outputs({"a": [1] * 9})}, lookahead=3)
    one.add("a", [5, 5], max_tokens=9)
    room = []
    while one.core.has_work():
        one.step()
        room.append(int(one.core._state.kv.room[one.runner.plans[-1].slots[0]]))
    # Pages of 4 tokens; 10 tokens are ever computed.
    assert room[:3] == [8, 8, 8]
    assert max(room) == 12


def test_a_prompt_that_fills_the_step_leaves_drafts_their_share(engine):
    """It counts as one token: only that must be certain of each row."""
    one = engine(
        runner=drafts_of({"drafts": list(range(1, 31)), "long": [7, 8]}),
        max_drafts=3,
        max_num_batched_tokens=8,
    )
    one.add("drafts", [1] * 3, 30)
    one.add("long", [2] * 60, 2)
    for _ in range(4):
        one.step()
    assert one.runner.plans[-1].draft_counts.max() == 3
    assert one.runner.plans[-1].num_new.tolist() == [4, 4]
    one.run()


def test_nobody_is_preempted_for_pages_that_come_back_with_the_step_in_flight(engine):
    """As many as are lacking, no more: the one that lacks them waits for one step."""
    one = engine(runner={"num_pages": 4, "page_tokens": 4}, loop_depth=2)
    one.add("a", [1] * 3, 4)  # needs another page for its fifth token
    one.add("b", [2], 3)
    one.add("c", [3] * 3, 5)
    one.step()
    one.core.abort(["c"])
    answers = one.run()
    assert [len(answers[name].tokens) for name in "abc"] == [4, 3, 1]
    assert [plan.slots.tolist() for plan in one.runner.plans[1:4]] == [[0, 1, 2], [1], [0]]
    assert one.core.stats.preemptions == 0


def test_for_fewer_pages_than_are_lacking_nobody_waits(engine):
    """One page comes back, two are lacking: the other has to be somebody's at once."""
    one = engine(
        policy=Priority(),
        runner={"num_pages": 5, "page_tokens": 4, "max_model_len": 16},
        max_num_batched_tokens=10,
        loop_depth=2,
    )
    one.add("b", [2], 4, priority=1)
    one.add("c", [3], 4, priority=1)
    one.step()
    one.add("a", [1] * 15, 1)
    one.step()
    assert one.runner.plans[-1].num_new.tolist() == [1, 1, 8]  # with that no page is free
    one.core.abort(["c"])
    one.step()
    assert one.core.stats.preemptions == 1
    answers = one.run()
    assert [len(answers[name].tokens) for name in "ab"] == [1, 4]


def test_who_is_in_line_again_after_a_preemption_can_be_aborted_there(engine):
    one = engine(runner={"num_pages": 8}, max_num_batched_tokens=20)
    for name in "abc":
        one.add(name, [ord(name)] * 5, 14)
    while not one.core.stats.preemptions:
        one.step()
    assert (one.core.stats.running, one.core.stats.waiting) == (2, 1)
    one.core.abort(["c"])
    one.core.check_integrity()
    answers = one.run()
    assert [answers[name].reason for name in "abc"] == ["length", "length", "abort"]


def test_who_is_in_line_again_after_it_stood_aside_can_be_aborted_there(engine):
    class Waits(SchedulerParticipant):
        asked = 0

        def admit(self, request):
            self.asked += 1
            return Wait("a while", lambda: True) if self.asked == 1 else READY

    one = engine(participants={"w": Waits()}, max_num_seqs=1)
    one.add("aside", [1], 3, extras={"w": b""})
    one.add("runs", [2], 20)
    one.step()
    one.step()
    assert (one.core.stats.running, one.core.stats.waiting_reasons) == (1, {})
    one.core.abort(["aside"])
    one.core.check_integrity()
    answers = one.run()
    assert (answers["aside"].reason, len(answers["runs"].tokens)) == ("abort", 20)
