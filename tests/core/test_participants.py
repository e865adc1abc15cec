"""Participants have a say in scheduling; the scheduler knows none of them."""

from __future__ import annotations

import pytest

from framework.contracts.participant import READY, Hold, Refuse, SchedulerParticipant, Wait
from framework.contracts.step import LateInputs


class Recorder(SchedulerParticipant):
    """Answers from attributes, and notes what it was asked."""

    def __init__(self):
        super().__init__()
        self.answer = READY
        self.most = 10**9
        self.calls = []
        self.hold = None

    def admit(self, request):
        self.calls.append(("admit", request.id))
        return self.answer

    def limit(self, request, start, tokens):
        return min(tokens, self.most)

    def attach(self, plan, requests):
        self.calls.append(("attach", sorted(r.id for r in requests.values())))
        return b"note"

    def absorb(self, result, requests):
        self.calls.append(("absorb", sorted(r.id for r in requests.values())))

    def release(self, request):
        self.calls.append(("release", request.id))
        return self.hold

    def late(self, plan, requests):
        return LateInputs(attachments={"late": str(plan.step_id).encode()})


def test_only_requests_that_name_a_participant_are_shown_to_it(engine):
    watcher = Recorder()
    one = engine(participants={"watch": watcher})
    one.add("seen", [1], max_tokens=2, extras={"watch": b""})
    one.add("unseen", [2], max_tokens=2, extras={"other": b""})
    one.run()
    assert ("admit", "seen") in watcher.calls
    assert ("release", "seen") in watcher.calls
    assert "unseen" not in str(watcher.calls)
    assert one.runner.plans[0].attachments == {"watch": b"note"}
    assert one.runner.lates[0].attachments == {"late": b"1"}


def test_a_request_that_waits_blocks_nobody_and_is_asked_again_when_woken(engine):
    watcher, awake = Recorder(), []
    watcher.answer = Wait("compiling", lambda: bool(awake))
    one = engine(participants={"watch": watcher})
    one.add("waits", [1], max_tokens=2, extras={"watch": b""})
    one.add("runs", [2], max_tokens=2)
    while one.answers["runs"].reason is None:
        one.step()
    assert one.core.stats.waiting_reasons == {"compiling": 1}
    assert one.answers["waits"].tokens == []
    assert watcher.calls.count(("admit", "waits")) == 1
    watcher.answer = READY
    awake.append(True)
    assert one.run()["waits"].reason == "length"


def test_a_request_that_waits_can_be_aborted(engine):
    watcher = Recorder()
    watcher.answer = Wait("for ever", lambda: False)
    one = engine(participants={"watch": watcher})
    one.add("waits", [1], extras={"watch": b""})
    one.step()
    one.core.abort(["waits"])
    assert one.run()["waits"].reason == "abort"


def test_a_refusal_ends_the_request_with_its_reason(engine):
    watcher = Recorder()
    watcher.answer = Refuse("no such adapter")
    one = engine(participants={"watch": watcher})
    one.add("bad", [1], extras={"watch": b""})
    one.add("good", [2])
    answers = one.run()
    assert (answers["bad"].reason, answers["bad"].error) == ("error", "no such adapter")
    assert answers["good"].reason == "length"


def test_a_participant_that_throws_refuses_its_request_and_is_named(engine):
    class Broken(SchedulerParticipant):
        def admit(self, request):
            raise RuntimeError("oops")

    one = engine(participants={"broken": Broken()})
    one.add("bad", [1], extras={"broken": b""})
    one.add("good", [2])
    answers = one.run()
    assert answers["bad"].reason == "error"
    assert "'broken'" in answers["bad"].error
    assert "oops" in answers["bad"].error
    assert answers["good"].reason == "length"


@pytest.mark.parametrize("depth", [1, 2])
def test_a_limit_slows_a_request_and_changes_no_token(engine, alone, depth):
    watcher = Recorder()
    watcher.most = 2
    one = engine(participants={"watch": watcher}, loop_depth=depth)
    one.add("slow", [1] * 9, extras={"watch": b""})
    answer = one.run()["slow"]
    assert answer.tokens == alone([1] * 9).tokens
    assert all(plan.num_new.max() <= 2 for plan in one.runner.plans)


def test_a_limit_of_zero_skips_the_step_and_lets_others_run(engine):
    watcher = Recorder()
    watcher.most = 0
    one = engine(participants={"watch": watcher})
    one.add("held", [1], extras={"watch": b""})
    one.add("free", [2])
    while one.answers["free"].reason is None:
        one.step()
    assert one.answers["held"].tokens == []
    watcher.most = 5
    assert one.run()["held"].reason == "length"


def test_held_pages_stay_until_their_holder_is_done(engine):
    watcher, done = Recorder(), []
    watcher.hold = Hold(lambda: bool(done))
    one = engine(participants={"watch": watcher})
    one.add("held", [1] * 9, max_tokens=2, extras={"watch": b""})
    while one.answers["held"].reason is None:
        one.step()
    assert one.core.stats.pages_used == 3
    done.append(True)
    one.add("next", [2])
    one.run()
