"""Plugins that fail while the runner uses them are named, whoever called the runner."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from framework.contracts.attention_backend import AttentionBackend
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.logits_processor import LogitsProcessor
from framework.contracts.model import AttentionLayer
from framework.contracts.platform import Detection, DeviceFacts, Platform
from framework.contracts.step import CacheGroup, CachePlan
from framework.errors import PluginError
from framework_torch.cache import KvCache
from framework_torch.context import StepContext
from framework_torch.sampler.processors import ProcessorChain
from framework_torch.selecting import choose_platform, facts_of

NAME = "its-kind:odd@its-dist"


def odd(contract: type, **methods: object) -> object:
    """A plugin of a contract with these methods; what it lacks raises."""

    def fails(*arguments: object) -> object:
        raise RuntimeError("boom")

    every = dict.fromkeys(contract.__abstractmethods__, fails)  # type: ignore[attr-defined]
    plugin = type("Odd", (contract,), {**every, **methods})()
    plugin.plugin_id = NAME
    return plugin


def cache_of(backend: object) -> KvCache:
    spec = FullAttentionSpec(num_kv_heads=1, head_size=2, head_size_v=2, dtype="float32")
    group = CacheGroup(spec=spec, layers=("a",), page_tokens=4)
    plan = CachePlan(
        groups=(group,), num_pages=2, page_bytes=64, slab_bytes=64, max_pages_per_request=1
    )
    layers = {"a": AttentionLayer(spec=spec, num_heads=1, params=None)}
    return KvCache(plan, layers, {spec: backend}, "cpu")


@pytest.mark.parametrize(
    "answer",
    [None, Detection(state="odd"), RuntimeError("boom")],
)
def test_a_platform_that_cannot_say_what_it_found_is_named(answer: object) -> None:
    def detect(self: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    registry = SimpleNamespace(create=lambda *a, **k: odd(Platform, detect=detect))
    with pytest.raises(PluginError) as caught:
        choose_platform(registry, "odd")
    assert (caught.value.plugin, caught.value.distribution) == (NAME, "its-dist")


@pytest.mark.parametrize(
    "facts", [None, DeviceFacts(name="x", device="cpu", capability=None, dtypes=())]
)
def test_facts_that_are_none_name_the_platform(facts: object) -> None:
    with pytest.raises(PluginError, match=NAME):
        facts_of(odd(Platform, facts=lambda self: facts))


@pytest.mark.parametrize("layout", [None, SimpleNamespace(shape=(2, 3), dtype="float32")])
def test_a_backend_with_a_layout_that_is_none_is_named(layout: object) -> None:
    backend = odd(AttentionBackend, builder=lambda s, g: None, layout=lambda *a: layout)
    with pytest.raises(PluginError, match=NAME):
        cache_of(backend)
    with pytest.raises(PluginError, match=f"{NAME} failed while making a metadata builder"):
        cache_of(odd(AttentionBackend))


def test_a_backend_that_fails_in_a_step_is_named() -> None:
    own = SimpleNamespace(
        backend=odd(AttentionBackend), view=None, group=0, params=None, head_size_v=2
    )
    context = StepContext(SimpleNamespace(layers={"a": own}), [None])
    tensor = torch.zeros(1, 1, 2)
    with pytest.raises(PluginError, match=f"{NAME} failed while attending in a: RuntimeError"):
        context.attend("a", tensor, tensor, tensor)


def test_a_processor_that_ends_the_process_ends_one_request_and_is_named() -> None:
    """`sys.exit` in a processor is a failure of the rows it was called for."""

    def apply(self: object, logits: torch.Tensor, slots: np.ndarray, outputs: object) -> None:
        if 1 in slots:
            raise SystemExit(3)

    chain = ProcessorChain([odd(LogitsProcessor, apply=apply)])
    history = SimpleNamespace(outputs=lambda row: np.zeros(0, np.int32))
    slots, greedy = np.arange(3, dtype=np.int32), np.ones(3, np.bool_)
    failures = chain.apply(torch.zeros(3, 4), slots, history, greedy)
    assert list(failures) == [1]
    assert NAME in failures[1]
