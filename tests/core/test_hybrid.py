"""Groups of layers that keep different things of the past share one pool."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from framework.contracts.kv_cache_spec import (
    ChunkedLocalSpec,
    CrossAttentionSpec,
    EncoderOnlySpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    MLASpec,
    SinkWindowSpec,
    SlidingWindowSpec,
)
from framework.contracts.step import CacheGroup, CachePlan
from framework.core.kv.groups import Needs, check_splits
from framework.core.kv.managers import (
    BUILT_IN,
    SlidingWindowManager,
    manager_for,
)
from framework.core.kv.prefix import key_of
from framework.errors import ConfigError

HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}
FULL = FullAttentionSpec(**HEADS)
WINDOW = SlidingWindowSpec(**HEADS, window=6)
SPECS = {
    "window": WINDOW,
    "sinks": SinkWindowSpec(**HEADS, window=6, sinks=3),
    "chunks": ChunkedLocalSpec(**HEADS, chunk=10),
    "latent": MLASpec(latent_size=6, rope_size=2, dtype="float16"),
    "state": MambaSpec(shapes=((3, 2), (2,)), dtypes=("float32", "float16")),
    "cross": CrossAttentionSpec(**HEADS, encoder_length=9),
    "encoder": EncoderOnlySpec(),
    "wide": FullAttentionSpec(num_kv_heads=4, head_size=1, head_size_v=1, dtype="float32"),
}


def layers(*kinds, full=1):
    found = {f"full.{k}": FULL for k in range(full)}
    for kind in kinds:
        name, _, count = kind.partition("*")
        found |= {f"{name}.{k}": SPECS[name] for k in range(int(count or 1))}
    return found


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("budget", [3, 100])
@pytest.mark.parametrize(
    "kinds",
    [
        ("window",),
        ("window*5",),
        ("sinks",),
        ("chunks",),
        ("latent",),
        ("state",),
        ("cross",),
        ("encoder",),
        ("wide",),
        ("window*3", "state", "wide"),
        ("window", "sinks", "chunks", "latent", "cross"),
    ],
    ids=", ".join,
)
def test_any_mixture_gives_each_request_its_own_tokens(engine, alone, kinds, budget, depth):
    """The fake cache checks every read; prefix hits happen, and nothing leaks."""
    one = engine(
        runner={"layers": layers(*kinds), "num_pages": 200},
        max_num_batched_tokens=budget,
        loop_depth=depth,
        max_num_seqs=4,
    )
    prompts = [[7] * n for n in (1, 5, 20, 33)] + [[7] * 33, [7] * 20 + [8] * 13]
    for turn in range(2):
        for index, prompt in enumerate(prompts):
            name = f"{turn}.{index}"
            one.add(name, prompt, 12, encoder_tokens=5 if "cross" in kinds else 0)
        answers = one.run()
    for name, answer in answers.items():
        prompt = prompts[int(name[2:])]
        assert answer.tokens == alone(prompt, 12).tokens
    assert one.core.stats.prefix_hits > 0
    assert answers["1.3"].cached >= 16


@pytest.mark.parametrize("kinds", [("window*2",), ("state",), ("chunks", "sinks")], ids=", ".join)
@pytest.mark.parametrize("depth", [1, 2])
def test_mixtures_survive_preemption(engine, alone, kinds, depth):
    one = engine(
        runner={"layers": layers(*kinds), "num_pages": 40}, loop_depth=depth, max_model_len=48
    )
    prompts = [[k] * (3 + 5 * (k % 6)) for k in range(12)]
    for index, prompt in enumerate(prompts):
        one.add(str(index), prompt, 20)
    answers = one.run()
    assert one.core.stats.preemptions > 0
    for index, prompt in enumerate(prompts):
        assert answers[str(index)].tokens == alone(prompt, 20).tokens


def test_memory_of_a_windowed_group_stays_bounded(engine):
    one = engine(
        runner={"layers": {"w": WINDOW}, "num_pages": 60, "max_model_len": 200},
        max_num_batched_tokens=8,
    )
    one.add("long", [1] * 100, 90)
    most = 0
    while one.core.has_work():
        one.step()
        most = max(most, one.core.stats.pages_used)
    assert most <= WINDOW.max_pages(190, 4, 8) == 5
    assert len(one.answers["long"].tokens) == 90


def test_a_page_that_is_given_back_is_told_once(engine):
    one = engine(
        runner={"layers": {"w": WINDOW}, "num_pages": 20, "max_model_len": 100},
        max_num_seqs=1,
        enable_prefix_caching=False,
    )
    for name in ("a", "b"):
        one.add(name, [1] * 30, 30)
    one.run()
    told = []
    for plan in one.runner.plans:
        (update,) = plan.pages
        ends = np.cumsum(update.counts)
        for row, (start, count) in enumerate(zip(update.starts, update.counts, strict=True)):
            ids = update.ids[ends[row] - count : ends[row]]
            told += [int(start) + k for k in np.flatnonzero(ids == 0)]
    assert told == [*range(12), *range(12)]


def test_a_window_is_hit_although_its_first_page_is_lost(engine):
    one = engine(runner={"layers": {"w": WINDOW}, "num_pages": 40, "max_model_len": 100})
    one.add("a", [1] * 30, 2)
    one.step()
    pool, (request,) = one.core._state.kv.pool, one.core._state.requests.values()
    first = pool.find(key_of(request.hashes[0], 0))
    one.run()
    pool.forget([first])
    one.add("again", [1] * 30, 2)
    assert one.run()["again"].cached == 28


def test_there_may_be_as_many_groups_as_layers(engine):
    """One rare layer makes groups of one of all others."""
    many = {f"w{number}": WINDOW for number in range(257)}
    one = engine(
        runner={"layers": {"full": FULL, **many}, "num_pages": 258 * 3, "max_model_len": 6},
        enable_kv_events=True,
    )
    for first in (1, 1, 2, 3):  # the pages of the last push out those of the first
        one.add(str(len(one.answers)), [first] * 5, 1)
        one.run()
    assert [answer.cached for answer in one.answers.values()] == [0, 4, 0, 0]
    events = one.core.take_kv_events()
    stored = [(e.name, e.group) for e in events if e.kind == "stored"]
    removed = {(e.name, e.group) for e in events if e.kind == "removed"}
    assert len(stored) == len(set(stored)) == 3 * 258
    assert removed < set(stored)
    assert {group for _, group in removed} == set(range(258))


def test_a_window_admits_longer_requests_than_its_pages_hold(engine):
    one = engine(
        runner={"layers": {"w": WINDOW}, "num_pages": 9, "max_model_len": 500},
        max_num_batched_tokens=8,
    )
    assert one.core.max_model_len == 500
    one.add("long", [1] * 300, 50)
    assert one.run()["long"].reason == "length"


@pytest.mark.parametrize("depth", [1, 2])
def test_layers_that_store_nothing_need_no_memory(engine, alone, depth):
    """A runner without a cache has no bytes for one; requests of any length run all the same."""
    one = engine(
        runner={"layers": {"e": EncoderOnlySpec()}, "max_model_len": 200}, loop_depth=depth
    )
    assert one.runner.info().bytes_free == 0
    assert one.core.max_model_len == 200
    prompts = [[7] * n for n in (1, 20, 150)]
    for index, prompt in enumerate(prompts):
        one.add(str(index), prompt, 12)
    for index, answer in one.run().items():
        assert answer.tokens == alone(prompts[int(index)], 12).tokens
    assert one.core.stats.pages_used == 0


@pytest.mark.parametrize("kind", ["encoder", "cross"])
def test_where_nothing_of_a_request_is_kept_nothing_is_hit(engine, kind):
    """Each token must be computed, also of a prompt that was there before."""
    one = engine(
        runner={"layers": {"e": SPECS[kind]}, "num_pages": 30, "max_model_len": 200},
        max_num_batched_tokens=16,
    )
    for name in ("first", "again"):
        one.add(name, [7] * 40, 1, encoder_tokens=9)
        one.run()
        assert one.answers[name].cached == 0
    assert [plan.num_tokens for plan in one.runner.plans if plan.num_rows] == [16, 16, 8] * 2
    assert one.core.stats.prefix_hits == 0


def test_prefix_hits_of_a_window_need_only_its_last_pages(engine):
    """The pages outside the window were given back and taken by others; the hit remains."""
    one = engine(runner={"layers": {"w": WINDOW}, "num_pages": 12, "max_model_len": 100})
    one.add("a", [1] * 30, 2)
    one.run()
    one.add("b", [2] * 30, 2)
    one.run()
    one.add("a again", [1] * 30, 2)
    assert one.run()["a again"].cached in (0, 28)
    roomy = engine(runner={"layers": {"w": WINDOW}, "num_pages": 40, "max_model_len": 100})
    for name in ("a", "b", "a again"):
        roomy.add(name, [2 if name == "b" else 1] * 30, 2)
        roomy.run()
    assert roomy.answers["a again"].cached == 28


def test_groups_with_other_page_sizes_share_the_pool_and_hits_convert(engine):
    """A narrow layer gets pages of 16 tokens where a wide one has pages of 4."""
    found = layers("wide")
    one = engine(runner={"layers": found, "num_pages": 80})
    sizes = {group.layers[0]: group.page_tokens for group in one.core.cache_plan.groups}
    assert sizes == {"full.0": 16, "wide.0": 4}
    for name in ("cold", "warm"):
        one.add(name, [1] * 40, 4)
        one.run()
    assert one.answers["warm"].cached == 32  # both groups end there


def test_layers_are_cut_into_groups_of_equal_bytes(engine):
    one = engine(runner={"layers": layers("window*5", full=2), "num_pages": 50})
    plan = one.core.cache_plan
    assert [len(group.layers) for group in plan.groups] == [2, 2, 2, 1]
    assert plan.page_bytes == 2 * FULL.page_bytes(4) == plan.places * plan.slab_bytes


def test_a_spec_without_a_manager_is_an_error_at_the_start(engine):
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Strange(KVCacheSpec):
        def state_bytes(self):
            return 8

    with pytest.raises(ConfigError, match="Strange"):
        engine(runner={"layers": {"x": Strange()}})


def test_a_subclass_is_served_by_the_nearest_manager_and_a_plugin_by_its_own():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Special(SlidingWindowSpec):
        pass

    class SpecialManager(SlidingWindowManager):
        spec_class = Special

    built_in = [make() for make in BUILT_IN]
    spec = Special(**HEADS, window=4)
    assert type(manager_for(spec, built_in)) is SlidingWindowManager
    assert type(manager_for(spec, [*built_in, SpecialManager()])) is SpecialManager


def test_bytes_and_pages_of_every_spec():
    assert FULL.page_bytes(16) == 16 * 2 * 4
    assert SPECS["latent"].page_bytes(16) == 16 * 8 * 2
    assert SPECS["state"].page_bytes(16) == SPECS["state"].page_bytes(1) == 6 * 4 + 2 * 2
    assert SPECS["encoder"].page_bytes(16) == 0
    packed = FullAttentionSpec(**HEADS, tokens_per_state=Fraction(4))
    double = FullAttentionSpec(**HEADS, tokens_per_state=Fraction(1, 2))
    assert (packed.page_bytes(16), double.page_bytes(16)) == (4 * 8, 32 * 8)
    assert FULL.max_pages(33, 16, 8) == 3
    assert WINDOW.max_pages(1000, 4, 8) == 5
    assert WINDOW.max_pages(3, 4, 8) == 1
    assert SPECS["sinks"].max_pages(1000, 4, 8) == 6
    assert SPECS["chunks"].max_pages(1000, 4, 8) == 6
    assert SPECS["state"].max_pages(1000, 16, 8) == 2
    assert SPECS["cross"].max_pages(1000, 4, 8) == 3
    assert SPECS["encoder"].max_pages(1000, 4, 8) == 0
    assert WINDOW.max_bytes(1000, 4, 8) == 5 * 4 * 8


@pytest.mark.parametrize(
    ("kind", "page", "half", "most"),
    [  # bytes of a page of 16 tokens; with half a state per token; pages of 1000 tokens, 8 a step
        ("window", 16 * 8, 8 * 8, 2),
        ("sinks", 16 * 8, 8 * 8, 3),
        ("chunks", 16 * 8, 8 * 8, 3),
        ("latent", 16 * 16, 8 * 16, 63),
        ("state", 28, 28, 2),
        ("cross", 16 * 8, 8 * 8, 1),
        ("encoder", 0, 0, 0),
        ("wide", 16 * 32, 8 * 32, 63),
    ],
)
def test_bytes_and_memory_of_each_class_of_specs(kind, page, half, most):
    spec = SPECS[kind]
    assert spec.page_bytes(16) == page
    assert replace(spec, tokens_per_state=Fraction(2)).page_bytes(16) == half
    assert replace(spec, tokens_per_state=Fraction(2)) != spec
    assert spec.max_bytes(1000, 16, 8) == most * page
    counts = [spec.max_pages(length, 16, 8) for length in range(1, 200)]
    assert counts == sorted(counts), "never less for more"


@pytest.mark.parametrize("layout", ["page_outermost", "layer_outermost"])
def test_placements_divide_the_buffer_without_overlap(layout):
    groups = (CacheGroup(spec=FULL, layers=("a", "b", "c"), page_tokens=4),)
    plan = CachePlan(
        groups=groups,
        num_pages=5,
        page_bytes=3 * 40,
        slab_bytes=40,
        max_pages_per_request=4,
        layout=layout,
    )
    seen = np.zeros(plan.num_pages * plan.page_bytes, int)
    for place in range(3):
        offset, stride = plan.placement(place)
        for page in range(plan.num_pages):
            seen[offset + page * stride :][: plan.slab_bytes] += 1
    assert (seen == 1).all()


def test_a_kernel_that_splits_pages_needs_them_without_gaps():
    group = CacheGroup(spec=FULL, layers=("a",), page_tokens=16)

    def plan(slab, layout):
        return CachePlan(
            groups=(group,),
            num_pages=5,
            page_bytes=2 * slab,
            slab_bytes=slab,
            max_pages_per_request=4,
            layout=layout,
        )

    check_splits(plan(128, "layer_outermost"), {FULL: 4})
    check_splits(plan(160, "page_outermost"), {FULL: 16})
    for bad in (plan(160, "layer_outermost"), plan(128, "page_outermost")):
        with pytest.raises(ConfigError, match="splits pages") as error:
            check_splits(bad, {FULL: 4})
        assert "layer_outermost" in str(error.value)
    with pytest.raises(ConfigError, match="splits pages"):
        check_splits(plan(128, "layer_outermost"), {FULL: 5})


def test_a_state_cannot_be_rolled_back_or_cut(engine):
    found = layers("state")
    with pytest.raises(ConfigError, match="max_drafts=0"):
        engine(runner={"layers": found}, max_drafts=2)
    # The page behind that of this step would go on from a state that is not there yet.
    with pytest.raises(ConfigError, match="lookahead=0"):
        engine(runner={"layers": found}, lookahead=1)
    with pytest.raises(ConfigError, match="enable_chunked_prefill"):
        engine(runner={"layers": found}, enable_chunked_prefill=False, max_model_len=64)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("budget", [3, 100])
def test_a_state_needs_a_page_for_each_step_in_flight_and_the_one_it_goes_on_from(
    engine, alone, depth, budget
):
    """With no page more, a request runs to its end and is never its own victim; with one less,
    only short ones are taken."""
    steps = -(-min(budget, 4) * depth // 4)
    for pages, longest in ((1 + steps, 300), (steps, 4 * steps)):
        layers = {"s": SPECS["state"]}
        one = engine(
            runner={"layers": layers, "num_pages": 1 + pages, "max_model_len": 300, "depth": depth},
            loop_depth=depth,
            max_num_batched_tokens=budget,
        )
        assert one.core.max_model_len == longest
        length = min(longest, 60) - 2
        one.add("a", [1] * length, 2)
        assert one.run()["a"].tokens == alone([1] * length, 2).tokens
        assert one.core.stats.preemptions == 0


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("kind", ["window", "chunks", "sinks", "state"])
def test_with_the_fewest_pages_that_are_promised_to_be_enough_a_request_alone_comes_to_its_end(
    engine, alone, kind, depth
):
    """Nothing else is there to be preempted, so that it would start again for ever."""
    truth = alone([1] * 40, 20).tokens
    for unit, budget in itertools.product((4, 5, 16), (1, 2, 5)):
        layers = {"a": SPECS[kind]}
        needs = Needs(
            (CacheGroup(spec=SPECS[kind], layers=("a",), page_tokens=unit),),
            (min(budget, unit) if kind == "state" else budget) * depth,
        )
        one = engine(
            runner={
                "layers": layers,
                "page_tokens": unit,
                "num_pages": 1 + needs.pages(60),
                "max_model_len": 60,
                "depth": depth,
            },
            loop_depth=depth,
            max_num_batched_tokens=budget,
        )
        assert one.core.max_model_len == 60
        one.add("a", [1] * 40, 20)
        assert one.run(500)["a"].tokens == truth
        assert one.core.stats.preemptions == 0


def test_pages_of_a_hit_are_not_taken_for_the_encoder_of_the_same_request(engine, alone):
    """They were used least recently, hence are the first that would be taken."""
    one = engine(
        runner={"layers": {"x": SPECS["cross"], "f": FULL}, "num_pages": 9}, max_model_len=20
    )
    for name, token, states in (("old", 1, 9), ("new", 2, 0)):
        one.add(name, [token] * 16, 1, encoder_tokens=states)
        one.run()
    one.add("again", [1] * 17, 1, encoder_tokens=9)
    answer = one.run()["again"]
    assert answer.cached == 16
    assert answer.tokens == alone([1] * 17, 1).tokens


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kind", ["state", "window", "chunks", "sinks"])
def test_whole_sequences_that_must_fit_are_never_preempted_whatever_is_kept(engine, kind, depth):
    for pages in range(11, 30, 6):
        one = engine(
            runner={"layers": {"a": SPECS[kind]}, "num_pages": pages, "max_model_len": 60},
            loop_depth=depth,
            max_num_batched_tokens=8,
            whole_sequence_must_fit=True,
        )
        for index in range(4):
            one.add(str(index), [index] * 30, 20)
        one.run()
        assert one.core.stats.preemptions == 0


@pytest.mark.parametrize("depth", [1, 2])
def test_a_page_that_two_share_is_no_page_that_one_of_them_gives_back(engine, depth):
    """So each of them may claim one more, if nobody is to be preempted."""
    for pages, gap in itertools.product((8, 9), (2, 3)):
        one = engine(
            runner={"layers": {"s": SPECS["state"]}, "num_pages": pages, "max_model_len": 60},
            loop_depth=depth,
            max_num_batched_tokens=12,
            whole_sequence_must_fit=True,
            long_prefill_threshold=4,
        )
        for index in range(5):
            one.add(str(index), [1] * 30, 20)
            for _ in range(gap):
                one.step()
        one.run()
        assert one.core.stats.prefix_hits > 0
        assert one.core.stats.preemptions == 0


def test_what_is_pinned_does_not_keep_out_who_would_share_it(engine):
    one = engine(
        runner={"layers": {"s": SPECS["state"]}, "num_pages": 5, "max_model_len": 60},
        max_num_batched_tokens=4,
        whole_sequence_must_fit=True,
    )
    one.add("first", [1] * 9, 1)
    one.run()
    key, pinned = one.core.pin_prefix([1] * 8)
    assert pinned == 8
    one.add("again", [1] * 9, 20)
    while one.core.has_work():
        one.step()
    assert one.answers["again"].cached == 8
    assert one.answers["again"].reason == "length"
    assert one.core.unpin_prefix(key)
    one.run()


def test_without_a_prefix_cache_a_state_takes_one_page(engine, alone):
    one = engine(
        runner={"layers": {"s": SPECS["state"]}, "num_pages": 9, "max_model_len": 300},
        enable_prefix_caching=False,
    )
    one.add("a", [1] * 250, 20)
    one.step()
    assert one.core.stats.pages_used == 1
    assert one.run()["a"].tokens == alone([1] * 250, 20).tokens


@pytest.mark.parametrize("group", [0, 1])
def test_a_page_lost_in_one_group_is_enough_to_compute_again(engine, alone, group):
    one = engine(runner={"layers": {"full": FULL, "window": WINDOW}})
    one.add("a", [1] * 9, 12)
    one.step()
    kv = one.core._state.kv
    one.runner.lose_pages = {one.runner.steps + 1: [int(kv.tables[group, 0, 2])]}
    assert one.run()["a"].tokens == alone([1] * 9, 12).tokens
    assert one.core.stats.preemptions == 1
