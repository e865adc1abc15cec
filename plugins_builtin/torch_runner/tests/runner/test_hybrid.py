"""Layers of several kinds in one model: groups with tables and page sizes of their own, and
pages that go back to the pool once the window has passed them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from framework.contracts.kv_cache_spec import FullAttentionSpec, SlidingWindowSpec
from framework.contracts.platform import DeviceFacts
from framework.contracts.step import NOTHING_LATE, KvOp
from framework.errors import PluginError
from framework_torch.choosing_attention import choose_attention
from framework_torch.models.definition import DecoderDefinition
from framework_torch.runner import TorchRunner

HYBRIDS = ("qwen2", "gemma2", "gemma3")
WINDOWED = ("mistral", *HYBRIDS)
IDS = np.random.default_rng(3).integers(0, 96, 60).tolist()


@pytest.mark.parametrize("name", HYBRIDS)
@pytest.mark.parametrize("layout", ["page_outermost", "layer_outermost"])
@pytest.mark.parametrize("page_tokens", [(2, 8), (8, 2), (3, 1)])
def test_groups_with_pages_of_different_sizes_give_transformers_tokens(
    name, layout, page_tokens, tiny, drive
) -> None:
    model = tiny(name)
    driver = drive(model.files, page_tokens=page_tokens, layout=layout)
    assert len(driver.groups) == 2
    driver.admit(0, IDS[:31])
    driver.admit(1, IDS[5:12])
    driver.run((0, 10), (1, 7))
    driver.run((1, 1), (0, 21))
    for _ in range(10):
        driver.run((0, 1), (1, 1))
    assert driver.requests[0].tokens[31:] == model.greedy(IDS[:31], 11)
    assert driver.requests[1].tokens[7:] == model.greedy(IDS[5:12], 12)


@pytest.mark.parametrize("name", WINDOWED)
def test_nothing_outside_the_window_reaches_a_result(name, tiny, drive) -> None:
    """The null page and every page in nobody's table hold NaN before each step."""
    model = tiny(name)
    driver = drive(model.files, page_tokens=2)
    driver.admit(0, IDS[:30])
    cache = driver.runner._computer.cache
    size = driver.num_pages

    def poisoned(new: int) -> None:
        plan = driver.plan((0, new))
        own = driver.requests[0].pages
        used = {page for table in own for page in table}
        strange = torch.tensor(sorted(set(range(size)) - used | {0}))
        for layer in cache.layers.values():
            layer.view[strange] = float("nan")
        driver.absorb(plan, driver.runner.finish(driver.runner.submit(plan), NOTHING_LATE))

    for new in (9, 1, 12, 8, *[1] * 8):
        poisoned(new)
    assert driver.requests[0].tokens[30:] == model.greedy(IDS[:30], 9)
    assert any(table.count(0) > 10 for table in driver.requests[0].pages)


@pytest.mark.parametrize("name", WINDOWED)
def test_a_windowed_group_holds_as_many_pages_as_its_spec_says(name, tiny, drive) -> None:
    driver = drive(tiny(name).files, page_tokens=2)
    driver.admit(0, IDS[:20])
    driver.run((0, 20))
    most = [0] * len(driver.groups)
    for _ in range(40):
        driver.run((0, 1))
        held = [sum(map(bool, table)) for table in driver.requests[0].pages]
        most = [max(pair) for pair in zip(most, held, strict=True)]
    for group, pages in zip(driver.groups, most, strict=True):
        assert pages <= group.spec.max_pages(60, 2, 20)
        assert (pages == 30) == (not isinstance(group.spec, SlidingWindowSpec))
    assert len(driver.free) == driver.num_pages - 1 - sum(held)
    driver.release(0)
    assert sorted(driver.free) == list(range(1, driver.num_pages))


def test_pages_are_copied_for_the_group_that_is_named(tiny, drive, helpers) -> None:
    """A request goes on with copies of one group's pages, whose originals are zeroed then, and
    with its own pages in the other group; its tokens stay the same."""
    model = tiny("gemma3")
    driver = drive(model.files, page_tokens=(4, 8))
    driver.admit(0, IDS[:16])
    driver.run((0, 16))
    own = driver.requests[0].pages[1]
    fresh = [driver.free.pop() for _ in own]
    operations = [KvOp("copy", 1, old, new) for old, new in zip(own, fresh, strict=True)]
    operations += [KvOp("zero", 1, 0, old) for old in own]
    plan = driver.plan((0, 1), kv_ops=tuple(operations))
    driver.runner._computer.batch.pages.groups[1][0, : len(fresh)] = fresh
    result = driver.runner.finish(driver.runner.submit(plan), NOTHING_LATE)
    assert helpers.tokens_of(result, 0) == model.greedy(IDS[:16], 2)[1:]


@pytest.mark.parametrize("name", WINDOWED)
def test_specs_say_window_or_all_layer_by_layer(name, tiny, context) -> None:
    model = tiny(name)
    info = TorchRunner().load(context(model.files))
    config = model.reference.config
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * 2
    for spec, kind in zip(info.layers.values(), kinds, strict=True):
        if kind == "sliding_attention":
            assert isinstance(spec, SlidingWindowSpec)
            assert spec.window == config.sliding_window
        else:
            assert type(spec) is FullAttentionSpec


def test_a_layer_that_sees_further_than_its_cache_keeps_is_refused(tiny, context) -> None:
    files = tiny("mistral").files
    layers = DecoderDefinition().build(files, None, "float32", 0).attention_layers("float32")
    facts = DeviceFacts(name="cpu", device="cpu", capability=None, dtypes=("float32",))
    wide = {
        name: replace(layer, params=replace(layer.params, window=7))
        for name, layer in layers.items()
    }
    assert choose_attention(context(files), layers, facts, "float32", ())
    with pytest.raises(PluginError, match="further back"):
        choose_attention(context(files), wide, facts, "float32", ())
