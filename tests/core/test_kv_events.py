"""Events of the prefix cache: what others make of them is what the cache holds."""

from __future__ import annotations

import random

from framework.contracts.messages import KVEvent
from framework.core.kv import events
from framework.core.kv.prefix import key_of


def ask(one, name, prompt, max_tokens=2, **more):
    one.add(name, prompt, max_tokens, **more)
    return one.run()[name]


def test_events_tell_what_is_stored_removed_and_cleared(engine):
    one = engine(runner={"num_pages": 7}, enable_kv_events=True)
    ask(one, "a", [1] * 9)
    stored = one.core.take_kv_events()
    assert [event.kind for event in stored] == ["stored", "stored"]
    assert stored[0].parent is None
    assert stored[1].parent == stored[0].name
    assert stored[1].tokens == (1, 1, 1, 1)
    ask(one, "b", [2] * 22)
    kinds = [event.kind for event in one.core.take_kv_events()]
    assert kinds.count("removed") == 2
    one.core.reset_prefix_cache()
    assert one.core.take_kv_events() == [KVEvent(kind="cleared")]


def test_events_that_nobody_takes_do_not_grow_and_make_the_same_of_the_same_cache(monkeypatch):
    """Also of a cache that was told up to some time, and with what was cleared in between."""
    monkeypatch.setattr(events, "LEAST", 50)
    chance, log, all_told = random.Random(5), events.EventLog(), []
    told, there = {}, {}
    for _ in range(4000):
        name = chance.choice(sorted(there)) if there else b""
        if chance.random() < 0.003:
            event = KVEvent(kind="cleared")
            there.clear()
        elif there and (len(there) > 20 or chance.random() < 0.4):
            event = KVEvent(kind="removed", name=name)
            del there[name]
        else:
            fresh = bytes([chance.randrange(40)])
            if fresh in there:
                continue
            event = KVEvent(kind="stored", name=fresh, tokens=(fresh[0],))
            there[fresh] = event
        log.add(event)
        all_told.append(event)
        assert len(log) <= 2 * (20 + 40 + 50)
        if chance.random() < 0.002:
            replay(told, log.take())
            assert told == there
    replay(told, log.take())
    assert told == there
    assert len(all_told) > 3000
    assert log.take() == []


def test_what_is_left_of_the_events_tells_of_a_page_after_what_lies_before_it(monkeypatch):
    """Its beginning was lost meanwhile, and came again: a router that keeps a tree would find no
    place for what was told before it."""
    monkeypatch.setattr(events, "LEAST", 9)
    log = events.EventLog()
    page = {"a": KVEvent(kind="stored", name=b"a")}
    page["b"] = KVEvent(kind="stored", name=b"b", parent=b"a")
    log.add(KVEvent(kind="removed", name=b"old"))
    log.add(page["a"])
    log.add(page["b"])
    for _ in range(3):
        log.add(KVEvent(kind="removed", name=b"a"))
        log.add(page["a"])
    assert log.take() == [KVEvent(kind="removed", name=b"old"), page["a"], page["b"]]


def test_what_was_told_and_is_lost_and_comes_again_is_no_change(monkeypatch):
    monkeypatch.setattr(events, "LEAST", 4)
    log = events.EventLog()
    for _ in range(2):
        log.add(KVEvent(kind="removed", name=b"a"))
        log.add(KVEvent(kind="stored", name=b"a"))
    assert log.take() == []


def replay(cache, changes):
    """As a router would; raises KeyError for what was never there."""
    for event in changes:
        if event.kind == "cleared":
            cache.clear()
        elif event.kind == "removed":
            del cache[event.name]
        else:
            assert event.name not in cache
            cache[event.name] = event


def test_a_server_whose_events_nobody_takes_keeps_a_few_for_each_page(engine, monkeypatch):
    monkeypatch.setattr(events, "LEAST", 50)
    one = engine(runner={"num_pages": 9}, enable_kv_events=True)
    for number in range(60):
        ask(one, str(number), [number] * 20)
    kept, names = one.core.take_kv_events(), {}
    assert len(kept) <= 60
    replay(names, kept)
    held = {key_of(name, 0) for name in names}
    assert held == set(one.core._state.kv.pool._page_of)


def test_after_the_cache_was_cleared_what_is_removed_is_told_as_before(engine):
    one = engine(runner={"num_pages": 7}, enable_kv_events=True)
    ask(one, "a", [1] * 20)
    one.core.reset_prefix_cache()
    ask(one, "b", [2] * 20)
    one.core.take_kv_events()
    ask(one, "c", [3] * 20)
    kinds = [event.kind for event in one.core.take_kv_events()]
    assert kinds.count("removed") == one.core.stats.prefix_evictions > 0


def test_events_tell_of_pages_that_outputs_fill(engine):
    one = engine(enable_kv_events=True)
    answers = [ask(one, name, [k] * 3, max_tokens=18) for k, name in enumerate("ab")]
    stored = one.core.take_kv_events()
    told = [token for event in stored for token in event.tokens]
    assert told == [0] * 3 + answers[0].tokens[:17] + [1] * 3 + answers[1].tokens[:17]
    assert [event.parent is None for event in stored] == [True, *[False] * 4] * 2


def test_events_are_not_kept_unless_asked_for(engine):
    one = engine()
    ask(one, "a", [1] * 9)
    assert one.core.take_kv_events() == []
