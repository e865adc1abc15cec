"""Participants have a say in scheduling; the scheduler knows none of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.participant import (
    READY,
    External,
    Hold,
    Refuse,
    SchedulerParticipant,
    Wait,
)
from framework.contracts.step import LateInputs
from framework.errors import InputError, UnsupportedError
from framework.testing import ScriptedRunner


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
    assert answers["bad"].refused
    assert answers["good"].reason == "length"


def raises(error):
    def call(*arguments):
        raise error

    return call


BAD = InputError("no such adapter", expected="one of 2", found="5")
SENTENCE = "no such adapter; expected one of 2; found 5"


@pytest.mark.parametrize(
    ("method", "call", "refused", "sentence"),
    [
        ("admit", raises(BAD), True, SENTENCE),
        ("admit", raises(UnsupportedError("not here")), True, "not here"),
        ("admit", lambda request: Refuse("it is gone", failed=True), False, "it is gone"),
        ("admit", raises(ValueError("5")), False, "failed in admit: ValueError: 5"),
        ("external_prefix", raises(BAD), True, SENTENCE),
        ("external_prefix", lambda *a: External(2, raises(BAD)), True, SENTENCE),
        ("external_prefix", lambda *a: External(2, raises(ValueError("5"))), False, "arrived"),
        ("limit", raises(BAD), False, "failed in limit"),
    ],
)
def test_who_is_at_fault_is_told(engine, method, call, refused, sentence):
    """What a participant says of the request is the client's to mend; a fault of its own is not."""
    watcher = Recorder()
    setattr(watcher, method, call)
    one = engine(participants={"watch": watcher})
    one.add("bad", [1] * 6, extras={"watch": b""})
    one.add("good", [2])
    answers = one.run()
    assert (answers["bad"].reason, answers["bad"].refused) == ("error", refused)
    assert sentence in answers["bad"].error
    assert (answers["good"].reason, answers["good"].refused) == ("length", False)


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


def test_a_request_that_leaves_is_released_once_for_each_time_it_was_asked(engine):
    """Not one that was never asked, nor one again that is back in line when it is aborted."""
    watcher = Recorder()
    one = engine(participants={"watch": watcher}, max_num_seqs=1)
    one.add("runs", [1] * 5, extras={"watch": b""})
    one.add("never", [2] * 5, extras={"watch": b""})
    one.step()
    one.core.abort(["never"])
    one.step()
    one.core.pause()
    one.core.weights_changed()  # back to the line
    one.core.abort(["runs"])
    one.core.resume()
    one.run()
    assert [name for call, name in watcher.calls if call == "release"] == ["runs"]


@pytest.mark.parametrize("answer", [Refuse("no"), Wait("later", lambda: False)])
def test_of_a_request_that_one_participant_keeps_the_next_hears_nothing(engine, answer):
    first, second = Recorder(), Recorder()
    one = engine(participants={"first": first, "second": second})
    one.add("kept", [1], max_tokens=2, extras={"first": b"", "second": b""})
    first.answer = answer
    one.step()
    one.core.abort(["kept"])
    one.add("runs", [2], max_tokens=2, extras={"first": b"", "second": b""})
    first.answer = READY
    one.run()
    assert [call for call in first.calls if call[0] == "release"] == [
        ("release", "kept"),
        ("release", "runs"),
    ]
    assert "kept" not in str(second.calls)
    assert second.calls.count(("release", "runs")) == 1


@pytest.mark.parametrize("waits", [False, True])
def test_held_pages_are_free_again_although_no_step_can_run(engine, waits):
    watcher, done = Recorder(), []
    watcher.hold = Hold(lambda: bool(done))
    one = engine(participants={"watch": watcher}, runner={"num_pages": 4})
    one.add("held", [1] * 9, max_tokens=2, extras={"watch": b""})
    while one.answers["held"].reason is None:
        one.step()
    if waits:
        one.add("next", [2] * 9, max_tokens=2)
        one.step()
        assert one.answers["next"].tokens == []
    done.append(True)
    one.run(20)


def test_held_pages_are_free_again_while_others_run_on_in_equal_steps(engine):
    watcher, done = Recorder(), []
    watcher.hold = Hold(lambda: bool(done))
    one = engine(participants={"watch": watcher}, runner={"page_tokens": 16})
    one.add("held", [1] * 9, max_tokens=2, extras={"watch": b""})
    one.add("runs", [2], max_tokens=40)
    for _ in range(6):
        one.step()
    assert one.core.stats.pages_used == 2
    done.append(True)
    one.step()
    one.step()
    assert one.core.stats.pages_used == 1
    assert one.run()["runs"].reason == "length"


def _boom(*arguments):
    raise RuntimeError("boom")


def _exit(*arguments):
    raise SystemExit(3)


class Panic(BaseException):
    """As libraries in Rust raise it: no Exception."""


def _panic(*arguments):
    raise Panic("index out of bounds")


WIDE = -(-32_000 // 32) + 1
RUBBISH = [
    *((method, _boom) for method in ("external_prefix", "limit", "attach", "absorb", "late")),
    *((method, _exit) for method in ("admit", "limit")),
    *((m, _panic) for m in ("admit", "external_prefix", "limit", "attach", "absorb", "late")),
    ("admit", lambda request: Wait("w", _panic)),
    ("external_prefix", lambda request, hit: External(4, _panic)),
    ("admit", lambda request: None),
    ("admit", lambda request: Wait([1], lambda: True)),
    ("admit", lambda request: Wait("w", _boom)),
    ("admit", lambda request: Wait("w", None)),
    ("external_prefix", lambda request, hit: None),
    ("external_prefix", lambda request, hit: (4, False)),
    ("external_prefix", lambda request, hit: External("many")),
    ("external_prefix", lambda request, hit: External(4, _boom)),
    ("limit", lambda request, start, tokens: None),
    ("limit", lambda request, start, tokens: 1.5),
    ("attach", lambda plan, requests: "text"),
    ("late", lambda plan, requests: 5),
    ("late", lambda plan, requests: LateInputs(bitmask=3)),
    ("late", lambda plan, requests: masks(requests, width=WIDE)),
    ("late", lambda plan, requests: masks({**requests, 99: None})),
    ("late", lambda plan, requests: replace(masks(requests), covered=np.zeros(7, np.int32))),
]


def masks(rows, width=None, **more):
    """A bitmask that allows everything, for each of the rows."""
    width = width or -(-ScriptedRunner().info().vocab_size // 32)
    return LateInputs(
        bitmask=np.full((len(rows), width), 2**32 - 1, np.uint32),
        bitmask_rows=np.array(list(rows), np.int32),
        **more,
    )


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("method", "answer"), RUBBISH)
def test_whatever_a_participant_does_ends_its_own_requests_only(
    engine, alone, caplog, method, answer, depth
):
    """The error names the participant, its class and the method, and the log has it too."""
    bad = SchedulerParticipant()
    setattr(bad, method, answer)
    one = engine(participants={"bad": bad}, loop_depth=depth, max_num_seqs=2)
    one.add("its", [1] * 9, extras={"bad": b""})
    one.add("other", [2] * 9)
    one.add("late comer", [3] * 9)
    answers = one.run()
    assert answers["its"].reason == "error"
    assert "'bad'" in answers["its"].error
    assert "framework.contracts.participant:SchedulerParticipant" in answers["its"].error
    if method != "external_prefix":
        assert answers["its"].error in caplog.text
    for name, prompt in (("other", [2] * 9), ("late comer", [3] * 9)):
        assert answers[name].tokens == alone(prompt).tokens
    assert one.core.stats.pages_used == 0


@pytest.mark.parametrize(
    "answer",
    [
        *(_boom, _exit, _panic, lambda request: 5),
        *(lambda request: Hold(_boom), lambda request: Hold(_panic), lambda request: Hold(5)),
    ],
)
def test_a_release_that_fails_is_logged_and_holds_nothing(engine, caplog, answer):
    bad = SchedulerParticipant()
    bad.release = answer
    one = engine(participants={"bad": bad})
    one.add("its", [1] * 9, max_tokens=2, extras={"bad": b""})
    assert one.run()["its"].reason == "length"
    one.add("next", [2] * 9)
    assert one.run()["next"].reason == "length"
    assert one.core.stats.pages_used == 0
    assert "participant 'bad'" in caplog.text


def test_bitmasks_of_two_participants_for_different_rows_are_put_together(engine):
    """Of two, one that says how many drafts it covers and one that does not."""
    first, second = SchedulerParticipant(), SchedulerParticipant()
    first.late = lambda plan, requests: masks(requests)
    second.late = lambda plan, rows: masks(rows, covered=np.zeros(len(rows), np.int32))
    one = engine(participants={"first": first, "second": second})
    one.add("a", [1], max_tokens=2, extras={"first": b""})
    one.add("b", [2], max_tokens=2, extras={"second": b""})
    one.run()
    late = one.runner.lates[0]
    assert late.bitmask_rows.tolist() == [0, 1]
    assert len(late.bitmask) == len(late.covered) == 2


def test_two_bitmasks_for_one_row_become_one(engine):
    both = {name: SchedulerParticipant() for name in ("first", "second")}
    for member in both.values():
        member.late = lambda plan, requests: masks(requests)
    one = engine(participants=both)
    one.add("two", [1], extras={"first": b"", "second": b""})
    one.add("one", [2], extras={"first": b""})
    answers = one.run()
    assert (answers["two"].reason, answers["one"].reason) == ("length", "length")
    assert one.runner.lates[0].bitmask_rows.tolist() == [0, 1]


def test_a_participant_is_not_shown_requests_that_have_left(engine):
    """With two steps in flight a request may end before its last row is finished."""
    gone, seen = set(), []

    class Watcher(SchedulerParticipant):
        attends_all = True

        def release(self, request):
            gone.add(request.id)

        def late(self, plan, requests):
            seen.extend(request.id in gone for request in requests.values())

    one = engine(participants={"watch": Watcher()}, loop_depth=2)
    one.add("a", [1], max_tokens=3)
    one.add("b", [2], max_tokens=6)
    one.step()
    one.core.abort(["b"])
    one.run()
    assert gone == {"a", "b"}
    assert not any(seen)
