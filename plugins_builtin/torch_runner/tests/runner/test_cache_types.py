"""Of which type K and V are kept, and who decides it."""

from types import SimpleNamespace

import pytest

from framework.errors import ConfigError, PluginError
from framework_cpu.platform import CpuPlatform
from framework_torch import choosing_cache
from framework_torch.choosing_cache import choose_cache
from framework_torch.runner import TorchRunner

AUTO = {
    "dtype": "auto",
    "choices": {"platform": "cpu", "attention_backend": "cpu_paged"},
}
WIDENS = {"avx2", "f16c"} <= CpuPlatform().facts().features
PREFERRED = "float16" if WIDENS else "float32"


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, PREFERRED),
        ({"cache_dtype": "float32"}, "float32"),
        ({"cache_dtype": "half"}, "float16"),
        ({"cache_dtype": "bfloat16"}, "bfloat16"),
        ({"kernel_set": "fused"}, "float32"),
        ({"kernel_set": "fused", "cache_dtype": "float16"}, "float16"),
        ({"dtype": "float32"}, "float32"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "bfloat16", "cache_dtype": "float32"}, "float32"),
        ({"choices": {"platform": "cpu", "attention_backend": "sdpa"}}, "float32"),
    ],
)
def test_the_operator_decides_and_else_what_the_backend_prefers(tiny, context, changes, kept):
    """Only where the type of the model is left to it, and kernels may round."""
    info = TorchRunner().load(context(tiny("llama").files, **{**AUTO, **changes}))
    assert {spec.dtype for spec in info.layers.values()} == {kept}
    assert any(line.endswith(f", K and V in {kept}") for line in info.notes)


def test_half_the_bytes_hold_twice_the_tokens(tiny, context):
    sizes = [
        TorchRunner().load(context(tiny("llama").files, cache_dtype=name)).bytes_free
        for name in ("float32", "float16")
    ]
    assert sizes[0] == 2 * sizes[1]


def test_an_unknown_type_is_an_error_that_names_the_setting(tiny, context):
    with pytest.raises(ConfigError, match=r"unknown kv_cache_dtype 'flaot16'.*did you mean"):
        TorchRunner().load(context(tiny("llama").files, cache_dtype="flaot16"))


@pytest.mark.parametrize("name", ["float16", "half"])
def test_whatever_is_taken_is_in_the_list_of_what_is(tiny, context, name):
    info = TorchRunner().load(context(tiny("llama").files, cache_dtype=name))
    assert any(line.endswith(", K and V in float16") for line in info.notes)
    with pytest.raises(ConfigError) as caught:
        TorchRunner().load(context(tiny("llama").files, cache_dtype="x" * 10_000))
    assert name in str(caught.value.expected).split(", ")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_tokens_are_those_of_the_type_whatever_backend_keeps_it(tiny, drive, name):
    """Both backends round K and V once, when they write them."""
    found = []
    for backend in ("sdpa", "cpu_paged"):
        driver = drive(
            tiny("llama").files,
            page_tokens=16,
            choices={"platform": "cpu", "attention_backend": backend},
            cache_dtype=name,
            kernel_set="plain",
        )
        driver.admit(0, [5, 17, 3, 29, 8, 41, 11])
        tokens = [*driver.run((0, 7)).token_ids]
        for _ in range(12):
            tokens += [*driver.run((0, 1)).token_ids]
        found.append(tokens)
    assert found[0] == found[1]


def test_a_backend_that_rejects_what_it_prefers_is_named(monkeypatch):
    """Another one that serves it instead would be a fall back without a word."""

    def chosen(context, layers, facts, dtype, ranking):
        name = "wide" if layers == "layers in float32" else "narrow"
        query = SimpleNamespace(layer_type="decoder")
        choice = SimpleNamespace(
            name=name, backend=object(), query=query, cache_dtypes=("float16",)
        )
        return {"spec": choice}

    monkeypatch.setattr(choosing_cache, "choose_attention", chosen)
    asked = SimpleNamespace(dtype="auto", cache_dtype="auto", kernel_set="best")
    with pytest.raises(PluginError, match="prefers a type of cache that it rejects"):
        choose_cache(asked, "layers in {}".format, None, "float32", ())
