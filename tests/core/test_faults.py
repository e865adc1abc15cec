"""The core under attack: participants that stall, pages behind the fence, hostile inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.messages import EngineInput
from framework.contracts.participant import READY, SchedulerParticipant, Wait
from framework.contracts.sampling import SamplingParams
from framework.core.policies import Priority
from framework.errors import EngineDeadError, InputError
from framework.testing import from_outputs
from framework.testing.harness import Answer


class Watcher(SchedulerParticipant):
    """most: tokens a step.  inside: ids that were admitted and not released."""

    def __init__(self):
        super().__init__()
        self.most = 10**9
        self.answer = READY
        self.inside = set()
        self.strangers = []

    def admit(self, request):
        self.inside.add(request.id)
        return self.answer

    def limit(self, request, start, tokens):
        return min(tokens, self.most)

    def late(self, plan, requests):
        self.strangers += [r.id for r in requests.values() if r.id not in self.inside]

    def release(self, request):
        self.inside.discard(request.id)


def test_a_running_request_that_is_limited_to_nothing_does_not_kill_those_in_line(engine):
    watcher = Watcher()
    one = engine(participants={"watch": watcher}, max_num_seqs=1)
    one.add("held", [1], extras={"watch": b""})
    one.step()
    one.add("waits", [2])
    watcher.most = 0
    one.step()
    watcher.most = 5
    answers = one.run()
    assert answers["held"].reason == answers["waits"].reason == "length"


def test_a_limited_request_does_not_use_up_the_budget_of_others(engine):
    watcher = Watcher()
    watcher.most = 1
    one = engine(participants={"watch": watcher}, max_num_batched_tokens=2)
    one.add("held", [1] * 9, extras={"watch": b""})
    one.add("free", [2])
    one.step()
    watcher.most = 0
    for _ in range(20):
        one.step()
    assert one.answers["free"].reason == "length"


def test_late_inputs_are_asked_only_of_requests_that_still_own_their_rows(engine):
    watcher = Watcher()
    one = engine(participants={"watch": watcher}, loop_depth=2)
    one.add("gone", [1] * 4, extras={"watch": b""})
    one.add("stays", [2] * 4, extras={"watch": b""})
    one.step()
    one.core.abort(["gone"])
    one.run()
    assert watcher.strangers == []


@pytest.mark.parametrize("answer", [READY, Wait("compiling", lambda: False)])
def test_a_participant_hears_of_the_end_of_a_request_that_never_ran(engine, answer):
    watcher = Watcher()
    watcher.answer = answer
    one = engine(participants={"watch": watcher}, runner={"num_pages": 3})
    one.add("runs", [1] * 5, max_tokens=2)
    one.add("waits", [2] * 5, max_tokens=2, extras={"watch": b""})
    one.step()
    assert watcher.inside == {"waits"}
    one.core.abort(["waits"])
    one.run()
    assert watcher.inside == set()


def test_pages_behind_the_fence_go_to_the_running_request_that_waits_for_them(engine):
    # running one waits for the rest, and is preempted in the next step.
    one = engine(
        policy=Priority(),
        runner={"num_pages": 11, "page_tokens": 1, "depth": 3},
        loop_depth=3,
        max_num_batched_tokens=4,
        max_num_seqs=8,
        max_drafts=1,
        enable_prefix_caching=False,
    )
    one.add("a", [0], max_tokens=1, priority=1)
    one.add("b", [1] * 6, max_tokens=1)
    one.add("c", [2] * 6, max_tokens=1)
    one.run(100)


def test_an_id_is_not_free_before_the_end_of_its_request_was_told(engine):
    one = engine()
    one.add("a", [1])
    one.core.abort(["a"])
    with pytest.raises(InputError, match="in use"):
        one.add("a", [2])


def test_a_row_with_an_error_hands_out_no_token(engine):
    one = engine(runner={"fail_rows": {(2, 0): "logits are NaN"}})
    one.add("a", [1])
    answer = one.run()["a"]
    assert (answer.reason, len(answer.tokens)) == ("error", 1)


def test_an_error_of_a_row_whose_request_has_left_concerns_nobody(engine, alone):
    """The slot may be another's by then."""
    one = engine(
        runner={"fail_rows": {(2, 0): "late"}}, loop_depth=2, max_num_seqs=1, max_num_active=1
    )
    one.add("gone", [1] * 3)
    one.step()
    assert len(one.runner._waiting) == 1, "step 2 is in flight"
    one.core.abort(["gone"])
    one.add("next", [2] * 3)
    answers = one.run()
    assert answers["gone"].reason == "abort"
    assert answers["next"].tokens == alone([2] * 3).tokens


def test_of_two_faults_of_one_row_the_runners_is_told(engine):
    class Failing(SchedulerParticipant):
        def absorb(self, result, requests):
            raise RuntimeError("afterwards")

    one = engine(participants={"p": Failing()}, runner={"fail_rows": {(1, 0): "logits are NaN"}})
    for name in "ab":
        one.add(name, [1], extras={"p": b""})
    answers = one.run()
    assert answers["a"].error == "logits are NaN"
    assert "'p'" in answers["b"].error
    assert "afterwards" in answers["b"].error


def test_accepted_drafts_without_their_tokens_are_a_fault_of_the_runner(engine):
    one = engine(
        runner={
            "script": from_outputs({"a": []}, default=5),
            "drafter": lambda request, tokens, wanted: [5] * wanted,
        },
        max_drafts=3,
    )
    one.add("a", [1], 20)
    finish = one.runner.finish

    def short(ticket, late):
        result = finish(ticket, late)
        first = np.array([0, 1], np.int32)
        return replace(result, token_ids=result.token_ids[:1], token_offsets=first)

    one.runner.finish = short
    with pytest.raises(EngineDeadError, match=r"(?s)ScriptedRunner gave .* 1 tokens in row 0"):
        one.run()


@pytest.mark.parametrize("count", [1, 4, 5, 6, 8, 9])
def test_a_request_without_output_ends_though_all_that_it_needs_is_cached(engine, count):
    """It computes one token less than others, which a page may hold already."""
    one = engine()
    one.add("before", [1] * 12)
    one.run()
    entry = EngineInput(
        request_id="scored",
        tokens=np.ones(count, np.int32),
        sampling=SamplingParams(),
        seed=0,
        max_total=count,
    )
    one.core.add(entry)
    one.answers["scored"] = Answer()
    answer = one.run()["scored"]
    assert (answer.reason, answer.tokens) == ("length", [])
    assert answer.cached == max(count - 2, 0) // 4 * 4
