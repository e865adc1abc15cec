"""What a participant holds back for ever ends, and the log says in time who does it."""

from __future__ import annotations

import pytest

from framework.contracts.participant import External, Hold, SchedulerParticipant, Wait


class Clock:
    """Every look at it takes a second."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        self.now += 1
        return self.now


class Holder(SchedulerParticipant):
    """Holds back what the test says."""

    def __init__(self, method=None, answer=None):
        super().__init__()
        if method:
            setattr(self, method, answer)


FOR_EVER = [
    ("limit", lambda request, start, tokens: 0, "limit answered 0 of 9 tokens"),
    ("limit", lambda request, start, tokens: -5, "limit answered -5 of 9 tokens"),
    ("admit", lambda request: Wait("compiling", lambda: False), "Wait, 'compiling'"),
    ("admit", lambda request: Wait("a slot", lambda: True), "Wait, 'a slot'"),
    ("external_prefix", lambda request, hit: External(4, lambda: None), "brings no pages"),
]


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(("method", "answer", "why"), FOR_EVER)
def test_a_request_that_is_held_back_for_ever_ends_and_its_holder_is_named(
    engine, caplog, method, answer, why, depth
):
    """No sooner than the time that is set, and others are not concerned."""
    clock = Clock()
    one = engine(
        participants={"holds": Holder(method, answer)},
        clock=clock,
        loop_depth=depth,
        participant_timeout=60,
    )
    one.add("held", [1] * 9, extras={"holds": b""})
    one.add("free", [2] * 9)
    start = clock.now
    answers = one.run()
    assert answers["free"].reason == "length"
    assert answers["held"].reason == "error"
    assert 60 <= clock.now - start < 200
    for text in (answers["held"].error, caplog.text):
        assert "participant 'holds'" in text
        assert "Holder" in text
        assert why in text
    assert "has held back 1 requests (held)" in caplog.text
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert 1 <= len(warnings) <= 5


def test_a_running_request_that_is_held_back_for_ever_ends_too(engine):
    watcher = Holder()
    one = engine(participants={"holds": watcher}, clock=Clock(), max_num_seqs=1)
    one.add("held", [1], extras={"holds": b""})
    one.add("next", [2])
    one.step()
    watcher.limit = lambda request, start, tokens: 0
    answers = one.run()
    assert (answers["held"].reason, len(answers["held"].tokens)) == ("error", 1)
    assert "limit answered 0" in answers["held"].error
    assert answers["next"].reason == "length"


def test_pages_that_are_kept_for_ever_end_those_who_need_them(engine):
    """They are not taken: somebody may still read them."""
    keeper = Holder("release", lambda request: Hold(lambda: False))
    one = engine(participants={"keeps": keeper}, clock=Clock(), runner={"num_pages": 5})
    one.add("gone", [1] * 9, 2, extras={"keeps": b""})
    one.add("waits", [2] * 9, 2)
    for _ in range(500):
        one.step()
    assert one.answers["gone"].reason == "length"
    assert one.answers["waits"].reason == "error"
    assert "keeps the pages of 'gone'" in one.answers["waits"].error
    assert one.core.stats.pages_used == 3
    assert not one.core.has_work()


def test_nothing_ends_while_others_run(engine, caplog):
    """As long as anything is computed, what is waited for may be one of those."""
    seen = []
    turn = Holder("admit", lambda request: Wait("a turn", lambda: "long" in seen))
    one = engine(participants={"turn": turn}, clock=Clock(), participant_timeout=20)
    one.add("held", [1], extras={"turn": b""})
    one.add("long", [2], 100)
    while one.answers["long"].reason is None:
        one.step()
    assert one.answers["held"].reason is None
    assert "participant 'turn'" in caplog.text
    seen.append("long")
    turn.admit = SchedulerParticipant().admit
    assert one.run()["held"].reason == "length"


def test_a_pause_is_nobodys_fault(engine):
    clock, watcher = Clock(), Holder("admit", lambda request: Wait("w", lambda: False))
    one = engine(participants={"w": watcher}, clock=clock, participant_timeout=20)
    one.add("held", [1], extras={"w": b""})
    one.core.pause()
    for _ in range(100):
        one.step()
    assert one.answers["held"].reason is None
    one.core.resume()
    assert one.run()["held"].reason == "error"


def test_without_a_limit_nothing_ends(engine):
    clock, watcher = Clock(), Holder("admit", lambda request: Wait("w", lambda: False))
    one = engine(participants={"w": watcher}, clock=clock, participant_timeout=None)
    one.add("held", [1], extras={"w": b""})
    for _ in range(300):
        one.step()
    assert one.answers["held"].reason is None
    one.core.abort(["held"])
    one.run()


def test_a_wait_that_ends_in_time_leaves_no_trace(engine, alone):
    """Held back twice, each time for less than the limit: time counts from the second one."""
    clock, watcher, asked = Clock(), Holder(), []

    def limit(request, start, tokens):
        asked.append(start)
        return tokens if len(asked) % 8 == 0 else 0

    watcher.limit = limit
    one = engine(participants={"w": watcher}, clock=clock, participant_timeout=60)
    one.add("held", [1] * 9, 12, extras={"w": b""})
    start = clock.now
    assert one.run()["held"].tokens == alone([1] * 9, 12).tokens
    assert clock.now - start > 120
    assert list(one.core._state.hub.held) == []


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("ends", [True, False])
def test_who_lacks_a_page_that_is_kept_waits_with_what_it_has(engine, alone, depth, ends):
    """Nobody is behind it that could be preempted, and its own pages are of no use to others."""
    kept = [True]
    keeper = Holder("release", lambda request: Hold(lambda: not kept))
    one = engine(
        participants={"keeps": keeper}, clock=Clock(), runner={"num_pages": 7}, loop_depth=depth
    )
    one.add("gone", [1] * 9, 2, extras={"keeps": b""})
    one.add("runs", [2] * 9, 12)
    while one.answers["gone"].reason is None:
        one.step()
    for _ in range(20):
        one.step()
    assert (one.core.stats.running, one.core.stats.preemptions) == (1, 0)
    assert one.answers["runs"].tokens == alone([2] * 9, 4).tokens
    if ends:
        kept.clear()
        assert one.run()["runs"].tokens == alone([2] * 9, 12).tokens
        assert one.core.stats.preemptions == 0
        return
    while one.answers["runs"].reason is None:
        one.step()
    assert "keeps the pages of 'gone'" in one.answers["runs"].error


def test_who_is_behind_is_preempted_also_while_pages_are_kept(engine, alone):
    """What others keep is no reason for the first in order to wait."""
    kept = [True]
    keeper = Holder("release", lambda request: Hold(lambda: not kept))
    one = engine(participants={"keeps": keeper}, runner={"num_pages": 10})
    one.add("gone", [1] * 9, 2, extras={"keeps": b""})
    one.add("first", [2] * 9, 12)
    one.add("second", [3] * 9, 12)
    while one.answers["first"].reason is None:
        one.step()
    assert kept
    assert one.answers["first"].tokens == alone([2] * 9, 12).tokens
    assert one.core.stats.preemptions >= 1
    kept.clear()
    assert one.run()["second"].tokens == alone([3] * 9, 12).tokens


def test_who_comes_late_waits_its_own_time_for_pages_that_are_kept(engine, alone):
    """They have been kept from others for longer than the limit, and come free soon."""
    kept = [True]
    keeper = Holder("release", lambda request: Hold(lambda: not kept))
    one = engine(participants={"keeps": keeper}, clock=Clock(), runner={"num_pages": 5})
    one.add("gone", [1] * 9, 2, extras={"keeps": b""})
    one.add("waits", [2] * 9, 2)
    while one.answers["waits"].reason is None:
        one.step()
    assert "keeps the pages of 'gone'" in one.answers["waits"].error
    one.add("late", [3] * 9, 2)
    for _ in range(5):
        one.step()
    assert one.answers["late"].reason is None
    kept.clear()
    assert one.run()["late"].tokens == alone([3] * 9, 2).tokens


def test_who_lacks_the_pages_of_one_that_is_held_back_does_not_end_with_it(engine, alone):
    """Its own wait is over long since, or it never had one."""
    turn = []
    admit = Holder("admit", lambda request: Wait("a turn", lambda: bool(turn)))
    arrivals = {"held": lambda: None, "waits": lambda: 0}
    late = Holder(
        "external_prefix", lambda request, hit: External(request.num_prompt, arrivals[request.id])
    )
    one = engine(
        participants={"turn": admit, "late": late},
        clock=Clock(),
        participant_timeout=20,
        enable_prefix_caching=False,
        runner={"num_pages": 13},
    )
    one.add("waits", [1] * 40, 4, extras={"turn": b"", "late": b""})
    one.add("long", [2], 20)
    one.step()
    one.add("held", [3] * 24, 4, extras={"late": b""})
    while one.answers["long"].reason is None:
        one.step()
    turn.append(True)
    admit.admit = SchedulerParticipant().admit
    answers = one.run()
    assert "brings no pages" in answers["held"].error
    assert answers["waits"].tokens == alone([1] * 40, 4).tokens


def test_who_could_go_on_with_pages_of_those_that_end_does_not_end_for_kept_ones(engine, alone):
    """Some pages are kept, but more are free once the request that is held back has gone."""
    kept = [True]
    keeper = Holder("release", lambda request: Hold(lambda: not kept))
    late = Holder("external_prefix", lambda request, hit: External(20, lambda: None))
    one = engine(
        participants={"keeps": keeper, "late": late}, clock=Clock(), runner={"num_pages": 13}
    )
    one.add("gone", [1], 2, extras={"keeps": b""})
    while one.core.has_work():
        one.step()
    one.add("held", [2] * 28, 2, extras={"late": b""})
    one.add("waits", [3] * 30, 2)
    while one.core.has_work():
        one.step()
    assert "brings no pages" in one.answers["held"].error
    assert one.answers["waits"].tokens == alone([3] * 30, 2).tokens
