"""Which kernel computes what in a model, and what becomes of the weights."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from framework.contracts.base import Rejected, Rejection, Supported
from framework.contracts.kernel import Kernel, KernelSupported, Prepared
from framework.contracts.model_runner import RunnerContext
from framework.contracts.platform import DeviceFacts
from framework.errors import ConfigError, PluginError, SelectionError
from framework.plugins.registry import PluginRegistry
from framework_torch.kernels.choose import choose_kernels
from framework_torch.kernels.fp16_packed import INSTRUCTIONS
from framework_torch.models.layers import Linear, RMSNorm

FACTS = DeviceFacts(
    name="cpu", device="cpu", capability=None, dtypes=("float32",), features=INSTRUCTIONS
)
PACKED = {"linear": "fp16_packed"}


def linear(value: float = 0.5, **more) -> Linear:
    site = Linear(4, 3, bias=True, **more)
    site.weight.data, site.bias.data = torch.full((3, 4), value), torch.ones(3)
    return site


def norm() -> RMSNorm:
    site = RMSNorm(4, 1e-5)
    site.weight.data = torch.full((4,), 3.0)
    return site


@pytest.fixture
def choose(registry):
    """choose(sites, ...) -> the start-up lines."""

    def run(sites, kernels=None, ranking=(), facts=FACTS, registry=registry, quantization=None):
        context = RunnerContext(
            model=None,
            registry=registry,
            dtype="auto",
            max_slots=1,
            max_step_tokens=1,
            max_model_len=None,
            kernels=kernels or {},
            quantization=quantization,
        )
        return choose_kernels(context, sites, facts, "float32", ranking)

    return run


def test_by_default_all_is_computed_plainly_and_weights_are_kept(choose):
    sites = {"a": linear(), "b": linear(), "n": norm(), "head": linear(op="logits")}
    x = torch.randn(2, 4)
    before = [site(x) for site in sites.values()]
    assert choose(sites) == ("kernels: linear plain (2), rms_norm plain (1), logits plain (1)",)
    for site, own in zip(sites.values(), before, strict=True):
        assert torch.equal(site(x), own)
        assert site.weight is not None


def test_the_operators_choice_is_taken_and_the_unpacked_weights_go(choose):
    site, other = linear(), norm()
    gone = weakref.ref(site.weight)
    [line] = choose({"a": site, "n": other}, PACKED)
    assert line.startswith("kernels: linear fp16_packed (1, ")
    assert line.endswith("of its own), rms_norm plain (1)")
    assert gone() is None
    assert site.weight is None
    assert site.bias is None
    assert torch.equal(site(torch.ones(2, 4)), torch.full((2, 3), 3.0))


def test_a_model_calls_the_kernel_and_nothing_before_it(choose):
    """After the choice `forward` is the kernel's own callable."""
    site = linear()
    choose({"a": site}, PACKED)
    assert "fp16_packed" in site.forward.__module__


def test_weights_that_do_not_suit_go_to_the_next_kernel_with_a_line(choose):
    """The platform prefers packing; one weight is too large for it."""
    good, bad = linear(), linear(1e6)
    lines = choose({"good": good, "bad": bad}, ranking=("fp16_packed",))
    assert lines[0].startswith("kernels: linear fp16_packed (1, ")
    assert "linear plain (1)" in lines[0]
    [told] = lines[1:]
    assert "linear of bad is not computed by fp16_packed: weight=1000000.0" in told
    assert good.weight is None
    assert bad(torch.ones(1, 4)).tolist() == [[4e6 + 1] * 3]


def test_a_preferred_kernel_that_cannot_serve_at_all_is_told_once(choose):
    without = replace(FACTS, features=frozenset(("avx2",)))
    lines = choose({"a": linear(), "b": linear()}, ranking=("fp16_packed",), facts=without)
    assert lines[0] == "kernels: linear plain (2)"
    assert len(lines) == 2
    assert "not computed by fp16_packed: features='no f16c, fma'" in lines[1]


def test_a_choice_whom_the_weights_do_not_suit_is_an_error_that_names_the_place(choose):
    with pytest.raises(SelectionError, match=r"linear of layers.1.down: .*fp16_packed.*65504"):
        choose({"layers.0.down": linear(), "layers.1.down": linear(-1e6)}, PACKED)


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        ({"lineer": "plain"}, "did you mean 'linear'"),
        ({"rms_norm": "plain"}, "which this model does not use"),
    ],
)
def test_a_choice_for_an_operator_that_the_model_lacks_is_an_error(choose, kernels, words):
    with pytest.raises(ConfigError, match=words):
        choose({"a": linear()}, kernels)


@pytest.mark.parametrize(
    ("kernels", "error", "words"),
    [
        ({"linear": "fp16_paked"}, PluginError, "did you mean 'fp16_packed'"),
        ({"linear": "fused_norm"}, SelectionError, "op='linear', needs rms_norm"),
    ],
)
def test_a_choice_that_cannot_serve_is_an_error(choose, kernels, error, words):
    with pytest.raises(error, match=words):
        choose({"a": linear()}, kernels)


class Foreign(Kernel):
    """Answers as its class says, and counts."""

    supports = True
    fault: Exception | None = None
    prepared: object = Prepared(call=lambda x: x[:, :3] * 0 + 7)

    def answer(self, query):
        if self.supports:
            return KernelSupported(error=1.0)
        reason = Rejection(code="c", field="op", found=query.op, needed="none", remedy="none")
        return Rejected((reason,))

    def prepare(self, query, weights, constants):
        if self.fault is not None:
            raise self.fault
        return self.prepared


def with_foreign(**attributes) -> PluginRegistry:
    registry = PluginRegistry()
    registry.register("kernel", "foreign", type("Own", (Foreign,), attributes), "their-dist")
    return registry


def test_a_platform_puts_another_kernel_in_the_place_of_a_named_one(choose):
    """By its ranking; the model does not notice."""
    site, registry = linear(), with_foreign()
    lines = choose({"a": site}, ranking=("foreign",), registry=registry)
    assert lines == ("kernels: linear foreign (1)",)
    assert site(torch.ones(1, 4)).tolist() == [[7.0] * 3]


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"fault": RuntimeError("boom")}, "failed while preparing a: RuntimeError: boom"),
        ({"prepared": None}, "answered prepare with None"),
        ({"answer": lambda self, query: Supported()}, "answered answer with"),
    ],
)
def test_a_kernel_that_fails_is_named(choose, attributes, words):
    registry = with_foreign(**attributes)
    with pytest.raises(PluginError, match=words) as caught:
        choose({"a": linear()}, {"linear": "foreign"}, registry=registry)
    assert caught.value.plugin == "kernel:foreign@their-dist"


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_a_model_with_other_kernels_says_nearly_the_same(tiny, drive, helpers, name):
    every = {"linear": "fp16_packed", "logits": "fp16_packed", "rms_norm": "fused_norm"}
    said = []
    for kernels in ({}, every):
        driver = drive(tiny(name).files, kernels=kernels)
        driver.admit(0, [5, 6, 7, 8])
        said.append(helpers.whole(driver.run((0, 4)).logprobs, 0))
    assert np.abs(said[0] - said[1]).max() < 0.02
    assert not np.array_equal(said[0], said[1])


def model_of(driver):
    return driver.runner._computer.model


@pytest.mark.parametrize(
    ("kernels", "packed"),
    [({"logits": "plain"}, False), ({"logits": "fp16_packed"}, True)],
)
def test_a_tied_head_is_kept_once_unless_packing_was_asked_for(tiny, drive, kernels, packed):
    """qwen2's head is the embedding."""
    model = model_of(drive(tiny("qwen2").files, kernels=kernels))
    assert model.head.shared
    assert model.embedding.weight is not None
    assert (model.head.weight is None) is packed
    assert packed or model.head.weight is model.embedding.weight


def test_a_tied_head_that_is_packed_is_where_the_embedding_reads(tiny, drive):
    """The platform's choice: all is kept once, in the kernel's own form."""
    from framework_torch.models.layers import Embedding

    model = model_of(drive(tiny("qwen2").files))
    assert model.head.weight is model.embedding.weight is None
    plain = model_of(drive(tiny("qwen2").files, kernels={"logits": "plain"})).embedding
    ids = torch.tensor([3, 0, 63, 3])
    assert isinstance(plain, Embedding)
    assert torch.allclose(model.embed(ids), plain(ids), rtol=2**-11, atol=2**-24)


def test_a_kernel_that_keeps_neither_a_shared_weight_nor_its_rows_is_named(choose):
    head, prepared = linear(op="logits"), Prepared(call=torch.relu, keeps_weights=False)
    head.shared = True
    with pytest.raises(PluginError, match="`rows`"):
        choose({"head": head}, ranking=("foreign",), registry=with_foreign(prepared=prepared))


def test_a_tied_head_is_kept_once_whatever_the_platform_prefers(choose):
    head = linear(op="logits")
    head.shared = True
    lines = choose({"head": head}, ranking=("fp16_packed",))
    assert lines[0] == "kernels: logits plain (1)"
    assert "keep_once=True" in lines[1]


def test_a_type_that_was_asked_for_is_kept_in_the_weights_too(registry):
    site = linear()
    context = RunnerContext(
        model=None,
        registry=registry,
        dtype="float32",
        max_slots=1,
        max_step_tokens=1,
        max_model_len=None,
    )
    lines = choose_kernels(context, {"a": site}, FACTS, "float32", ("fp16_packed",))
    assert lines[0] == "kernels: linear plain (1)"
    assert "lossless=True" in lines[1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"dtype": "auto"}, "layer_input cpu_packed (2"),
        ({"dtype": "auto", "kernel_set": "fused"}, "layer_input cpu_packed (2"),
        ({"dtype": "auto", "kernel_set": "plain"}, "linear plain (8)"),
        ({"kernels": {"linear": "plain"}}, "linear plain (8)"),
        (
            {"kernels": {"linear": "plain", "layer_output": "cpu_packed"}},
            "layer_output cpu_packed (2",
        ),
        ({"ranking": ()}, "linear plain (8)"),
    ],
)
def test_layers_are_computed_whole_where_the_platform_prefers_it(
    tiny, drive, monkeypatch, changes, expected
):
    """And nobody has named kernels for their parts."""
    changes = dict(changes)
    if changes.pop("ranking", None) == ():
        monkeypatch.setattr("framework_cpu.platform.RANKINGS", {})
    notes = drive(tiny("llama").files, **changes).runner._loaded.info.notes
    (line,) = (note for note in notes if note.startswith("kernels: "))
    assert expected in line


def test_below_the_last_level_no_weight_is_rounded(tiny, drive, helpers):
    def said(**changes):
        driver = drive(tiny("llama").files, **changes)
        driver.admit(0, [5, 6, 7, 8])
        return helpers.whole(driver.run((0, 4)).logprobs, 0)

    exact = said(dtype="float32")
    assert np.array_equal(said(dtype="auto", kernel_set="fused"), exact)
    assert not np.array_equal(said(dtype="auto"), exact)
    assert np.abs(said(dtype="auto") - exact).max() < 0.02


def test_a_model_that_publishes_no_operators_computes_by_itself(choose):
    assert choose({}) == ()
    with pytest.raises(ConfigError, match="computes all by itself"):
        choose({}, PACKED)


def test_quantization_is_asked_of_linear_maps_only(choose):
    asked = []

    class Eight(Kernel):
        """Notes what it is asked."""

        def answer(self, query):
            asked.append((query.op, query.quantization, query.lossless))
            return KernelSupported(error=0.01)

        def prepare(self, query, weights, constants):
            return Prepared(call=lambda x: x)

    registry = PluginRegistry()
    registry.register("kernel", "eight", Eight, "their-dist")
    choose({"a": linear(), "n": norm()}, registry=registry, quantization="int8")
    assert set(asked) == {("linear", "int8", False), ("rms_norm", None, False)}


def test_a_quantization_that_no_kernel_knows_or_that_changes_nothing_is_refused(choose):
    with pytest.raises(SelectionError, match="quantization='int3'"):
        choose({"a": linear()}, quantization="int3")
    with pytest.raises(ConfigError, match="would change nothing"):
        choose({"n": norm()}, quantization="int8")
