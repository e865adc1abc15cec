"""The published fakes: what they keep, and what they refuse."""

from __future__ import annotations

import pytest

from framework.contracts.kv_cache_spec import CrossAttentionSpec
from framework.contracts.step import CacheGroup, CachePlan
from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.policies import FirstComeFirstServed
from framework.errors import InputError, IntegrityError
from framework.testing import ScriptedRunner
from framework.testing.byte_tokenizer import ByteTokenizer
from framework.testing.fake_cache import FakeCache
from tests.core.conftest import Harness


def test_the_scripted_runner_keeps_steps_only_if_asked():
    runner = ScriptedRunner()
    one = Harness()
    one.runner = runner
    one.core = EngineCore(runner, runner.info(), CoreConfig(), policy=FirstComeFirstServed())
    one.add("a", [1], 20)
    one.run()
    assert (runner.steps, runner.plans, runner.lates) == (20, [], [])
    kept = Harness()
    kept.add("a", [1], 20)
    kept.run()
    assert kept.runner.steps == len(kept.runner.plans) == len(kept.runner.lates) == 20


@pytest.mark.parametrize(("states", "pages"), [(1, 1), (4, 1), (5, 2)])
def test_the_scripted_runner_misses_pages_for_what_an_encoder_leaves(states, pages):
    """A request without them would read nothing, and nothing is what it would be checked for."""
    spec = CrossAttentionSpec(
        num_kv_heads=1, head_size=1, head_size_v=1, dtype="float32", encoder_length=8
    )
    group = CacheGroup(spec=spec, layers=("cross",), page_tokens=4)
    plan = CachePlan(
        groups=(group,), num_pages=9, page_bytes=32, slab_bytes=32, max_pages_per_request=2
    )
    cache = FakeCache(plan)
    for held in range(3):
        cache.tables[0] = [list(range(1, held + 1))]
        if held >= pages:
            cache.encode(0, 77, states)
            cache.step(0, [1, 2], 0, 1, 77)
            continue
        with pytest.raises(IntegrityError, match=f"lacks pages for {states} states"):
            cache.encode(0, 77, states)


def test_the_scripted_runner_loses_what_it_says_it_has_lost(engine):
    """Else nobody would see who goes on with it: here a core that is not told."""
    one = engine(runner={"lose_pages": {3: [1]}})
    one.core._state.kv.invalidate = lambda pages: []
    one.add("reads", [1] * 5, 9)
    one.add("other", [2] * 5, 9)
    answers = one.run()
    assert answers["reads"].error == "it was computed from pages that are lost"
    assert len(answers["reads"].tokens) == 3
    assert answers["other"].reason == "length"


@pytest.mark.parametrize("text", ["\ud800", "fine \udfff"])
def test_half_a_surrogate_pair_is_one_clear_error(text):
    tokenizer = ByteTokenizer()
    chats = [
        lambda: tokenizer.encode(text),
        lambda: tokenizer.render_chat([{"role": "user", "content": text}]),
        lambda: tokenizer.render_chat([{"role": text, "content": "hi"}]),
        lambda: tokenizer.render_chat([], chat_template=text),
    ]
    for ask in chats:
        with pytest.raises(InputError, match="half of a surrogate pair"):
            ask()
    assert tokenizer.decode(tokenizer.encode("fine \U0001f600")) == "fine \U0001f600"
