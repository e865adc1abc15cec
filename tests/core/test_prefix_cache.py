"""The prefix cache: names, salts, collisions, eviction, events and pins."""

from __future__ import annotations

from hashlib import sha256
from types import SimpleNamespace

import pytest

from framework.contracts.pooling import PoolingParams
from framework.core.kv import hashing
from framework.core.kv.pages import PagePool
from framework.errors import ConfigError, InputError, IntegrityError


def ask(one, name, prompt, max_tokens=2, **more):
    one.add(name, prompt, max_tokens, **more)
    return one.run()[name]


def test_pages_without_a_name_are_reused_first_then_the_least_recently_used():
    pool = PagePool(6)
    pages = pool.allocate(5)
    for page in pages[:3]:
        assert pool.store(page, b"name%d" % page, b"")
    pool.release([pages[1]])
    pool.release([pages[0]])
    pool.release([pages[4]])
    pool.release([pages[2]])
    assert pool.allocate(4) == [pages[4], pages[1], pages[0], pages[2]]
    assert pool.evictions == 3
    assert pool.find(b"name%d" % pages[0]) is None


def test_a_hit_page_leaves_the_free_list_and_comes_back_at_its_end():
    pool = PagePool(4)
    pages = pool.allocate(3)
    for page in pages:
        pool.store(page, b"%d" % page, b"")
    pool.release(pages)
    pool.acquire([pages[0]])
    assert pool.num_free == 2
    pool.release([pages[0]])
    assert pool.allocate(3) == [pages[1], pages[2], pages[0]]


def test_giving_a_page_back_twice_is_an_error():
    pool = PagePool(3)
    [page] = pool.allocate(1)
    pool.release([page])
    with pytest.raises(IntegrityError, match="twice"):
        pool.release([page])


@pytest.mark.parametrize("page", [0, 3])
def test_a_page_that_does_not_exist_cannot_be_lost(page):
    with pytest.raises(IntegrityError, match="do not exist"):
        PagePool(3).forget([page])


def test_taking_more_pages_than_are_free_is_an_error():
    with pytest.raises(IntegrityError, match="more pages"):
        PagePool(3).allocate(3)


def test_the_front_of_a_prefix_outlives_its_end(engine):
    """The pages of a request are given back last first, so that its beginning stays longest."""
    one = engine(runner={"num_pages": 9})
    ask(one, "a", [1] * 20)
    ask(one, "b", [2] * 20)
    assert 0 < ask(one, "a again", [1] * 20).cached < 16


def test_a_collision_of_names_is_found_and_treated_as_a_miss(engine, alone, monkeypatch):
    """Under a hash that gives everything one of two names, no request gets another's pages."""

    class OneBit:
        def __init__(self, data):
            self.data = data

        def update(self, data):
            self.data += data

        def digest(self):
            return bytes([sha256(self.data).digest()[0] % 2])

    monkeypatch.setattr("framework.core.kv.manager.choose_hash", lambda name: (OneBit, b""))
    one = engine()
    for number in range(12):
        prompt = [number] * 20
        assert ask(one, str(number), prompt, 6).tokens == alone(prompt, 6).tokens
    assert one.core.stats.prefix_collisions > 0


def test_xxhash_serves_and_its_root_is_of_this_process_alone(engine, monkeypatch):
    pytest.importorskip("xxhash", reason="the extra framework[xxhash] is not installed")
    one = engine(prefix_hash="xxhash")
    ask(one, "a", [1] * 20)
    assert ask(one, "b", [1] * 20).cached == 16
    roots = {hashing.choose_hash("xxhash")[1] for _ in range(3)}
    assert len(roots) == 3


def test_without_the_package_xxhash_is_refused_with_the_line_to_install(engine, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(ConfigError, match=r"framework\[xxhash\]"):
        engine(prefix_hash="xxhash")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"salt": "a"}, {"salt": "b"}),
        ({"salt": "a"}, {}),
        ({"adapter": 1}, {"adapter": 2}),
        ({"adapter": 1}, {"salt": "1"}),
        ({"salt": "adapter\0"}, {"salt": "adapter"}),
    ],
)
def test_whatever_changes_the_cache_changes_the_names(engine, first, second):
    one = engine(runner={"features": frozenset(("adapters",))})
    ask(one, "first", [1] * 20, **first)
    assert ask(one, "second", [1] * 20, **second).cached == 0
    assert ask(one, "again", [1] * 20, **first).cached == 16


TEXTS = ["", "a", "b", "\0", "a\0", "\0b", "a\0b", "\ud800", "payload", "salt"]


def test_no_two_different_requests_have_one_name():
    """Names, values and salts that hold what separates others, and text that is no UTF-8."""
    names = {}
    hasher = hashing.PageHasher("model", 4)
    for first in TEXTS:
        for second in TEXTS:
            for salt in (None, "", first):
                for payloads in ({}, {first: second}, {first: second, second + "x": first}):
                    for states in (0, 3):
                        extras = {
                            n: t.encode("utf-8", "surrogatepass") for n, t in payloads.items()
                        }
                        entry = SimpleNamespace(
                            adapter=None,
                            salt=salt,
                            payloads=payloads,
                            encoder_tokens=states,
                            extras=extras,
                        )
                        name = hasher.start(SimpleNamespace(input=entry))
                        told = (salt, states, tuple(sorted(payloads.items())))
                        assert names.setdefault(name, told) == told
    assert len(names) > 400


def test_identity_unit_and_epoch_are_told_apart():
    roots = {
        hashing.PageHasher(name, unit)._root for name in ("a", "a\0", "a\x001") for unit in (1, 11)
    }
    assert len(roots) == 6


def test_a_secret_of_the_process_changes_every_name():
    roots = {hashing.PageHasher("a", 1, root=secret)._root for secret in (b"", b"1", b"2")}
    assert len(roots) == 3


def fresh(one):
    """The runner's weights change, and the core is told."""
    one.runner.weights += 1
    one.core.weights_changed()
    one.core.check_integrity()


def test_after_a_change_of_weights_no_page_from_before_is_hit(engine):
    one = engine(enable_kv_events=True)
    key, _ = one.core.pin_prefix([1] * 20)
    ask(one, "a", [1] * 20)
    one.core.unpin_prefix(key)
    fresh(one)
    assert one.core.take_kv_events()[-1].kind == "cleared"
    assert ask(one, "b", [1] * 20).cached == 0
    assert ask(one, "c", [1] * 20).cached == 16


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("when", [0, 1, 3, 6])
def test_requests_that_run_are_computed_again_by_the_new_weights(engine, depth, when):
    """The runner compares what lies in the cache with what its weights would put there; no
    token is lost or repeated."""
    counts = by_position(50)
    one = engine(loop_depth=depth, max_num_batched_tokens=13, runner={"script": counts})
    for number in range(4):
        one.add(str(number), [number] * 9, 12)
    for _ in range(when):
        one.step()
    fresh(one)
    answers = one.run()
    assert all(answers[str(n)].tokens == list(range(9, 21)) for n in range(4))
    again = ask(one, "again", [0] * 9 + list(range(9, 21)), 2)
    assert again.cached == 20  # what was named since is of the new weights


def test_hashes_that_waiting_requests_keep_are_forgotten(engine):
    one = engine(max_num_seqs=1, runner={"script": by_position(50)})
    one.add("a", [1] * 20, 6)
    one.add("waits", [1] * 20, 6)
    for _ in range(3):
        one.step()
    one.core._state.kv.match(one.core._state.requests["waits"], 19)
    fresh(one)
    answers = one.run()
    assert (answers["a"].reason, answers["waits"].cached) == ("length", 16)


def by_position(most):
    return lambda request, position, before: position % most


def test_without_caching_nothing_is_hit(engine):
    one = engine(enable_prefix_caching=False)
    ask(one, "a", [1] * 20)
    assert ask(one, "b", [1] * 20).cached == 0
    assert (one.core.stats.prefix_queries, one.core.stats.prefix_hits) == (0, 0)


def test_statistics_count_tokens_asked_and_found(engine):
    one = engine()
    ask(one, "a", [1] * 20)
    ask(one, "b", [1] * 18)
    stats = one.core.stats
    assert (stats.prefix_queries, stats.prefix_hits) == (38, 16)


def test_statistics_do_not_count_tokens_that_nobody_looks_for(engine):
    """Of vectors, and of prompts whose log-probabilities are wanted, all tokens are computed: they
    would make the share that was found seem smaller than it is."""
    one = engine(runner={"embedding_size": 3})
    ask(one, "first", [1] * 20)
    for name, more in (
        ("vector", {"pooling": PoolingParams()}),
        ("scored", {"prompt_logprobs": 0}),
    ):
        assert ask(one, name, [1] * 20, **more).cached == 0
    assert ask(one, "last", [1] * 20).cached == 16
    assert (one.core.stats.prefix_queries, one.core.stats.prefix_hits) == (40, 16)


def test_a_pinned_prefix_survives_what_would_evict_it(engine):
    one = engine(runner={"num_pages": 20}, max_model_len=40)
    prompt = [1] * 21
    ask(one, "a", prompt)
    key, tokens = one.core.pin_prefix(prompt)
    assert (key, tokens) == (1, 20)
    assert one.core.stats.pages_pinned == 5
    for number in range(8):
        one.add(f"other{number}", [10 + number] * 30)
    while one.core.has_work():
        one.step()
    one.add("a again", prompt)
    while one.core.has_work():
        one.step()
    assert one.answers["a again"].cached == 20
    assert one.core.unpin_prefix(key)
    assert not one.core.unpin_prefix(key)
    one.core.check_integrity()
    assert one.core.stats.pages_used == 0


def test_a_page_that_is_pinned_twice_is_counted_once_and_stays_until_both_let_go(engine):
    one = engine(max_model_len=40)
    ask(one, "a", [1] * 20)
    keys = [one.core.pin_prefix([1] * length)[0] for length in (20, 12)]
    assert one.core.stats.pages_pinned == one.core.stats.pages_used == 5
    assert one.core.unpin_prefix(keys[0])
    assert one.core.stats.pages_pinned == one.core.stats.pages_used == 3
    one.core.unpin_prefix(keys[1])
    one.core.check_integrity()
    assert one.core.stats.pages_used == 0


def test_only_what_is_cached_can_be_pinned(engine):
    one = engine()
    assert one.core.pin_prefix([1] * 20)[1] == 0


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [
        ({"tokens": [2**40]}, "tokens"),
        ({"tokens": [-1]}, "tokens"),
        ({"tokens": [1.5]}, "tokens"),
        ({"tokens": [True]}, "tokens"),
        ({"tokens": "text"}, "tokens"),
        ({"tokens": 5}, "tokens"),
        ({"tokens": [1], "salt": 5}, "salt"),
        ({"tokens": [1], "adapter": "one"}, "adapter"),
    ],
)
def test_what_is_no_prefix_is_not_pinned(engine, wrong, parameter):
    one = engine()
    with pytest.raises(InputError) as caught:
        one.core.pin_prefix(**wrong)
    assert caught.value.parameter == parameter
    one.core.check_integrity()


def test_a_pin_that_leaves_no_room_for_the_longest_request_is_refused(engine):
    one = engine(runner={"num_pages": 12}, max_model_len=36)
    ask(one, "a", [1] * 30)
    with pytest.raises(InputError, match="too long to be pinned"):
        one.core.pin_prefix([1] * 30)
    assert one.core.stats.pages_pinned == 0
    one.core.check_integrity()
