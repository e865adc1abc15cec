"""Layers that keep first tokens beside a window, or chunks: giving pages back changes nothing."""

from dataclasses import fields, replace

import numpy as np
import pytest

from framework.contracts.kv_cache_spec import ChunkedLocalSpec, FullAttentionSpec, SinkWindowSpec
from framework.contracts.platform import DeviceFacts
from framework.errors import PluginError
from framework_torch.choosing_attention import choose_attention
from framework_torch.models.decoder import Decoder
from framework_torch.models.definition import DecoderDefinition

IDS = np.random.default_rng(5).integers(0, 96, 40).tolist()
MASKS = {
    "sinks": ({"window": 6, "sink_tokens": 3}, SinkWindowSpec, {"window": 6, "sinks": 3}),
    "chunks": ({"chunk": 9}, ChunkedLocalSpec, {"chunk": 9}),
}


def changed(layers, masks, spec_class, sizes):
    """All layers with a mask, and with a cache that keeps what it shows."""
    return {
        name: replace(
            layer,
            params=replace(layer.params, **masks),
            spec=spec_class(
                **{f.name: getattr(layer.spec, f.name) for f in fields(FullAttentionSpec)}, **sizes
            ),
        )
        for name, layer in layers.items()
    }


@pytest.fixture
def generate(tiny, drive, monkeypatch):
    """generate(masks, spec_class, sizes) -> (tokens, null pages in the table at the end)."""
    plain = Decoder.attention_layers

    def run(masks, spec_class, sizes):
        monkeypatch.setattr(
            Decoder,
            "attention_layers",
            lambda self, dtype: changed(plain(self, dtype), masks, spec_class, sizes),
        )
        driver = drive(tiny("llama").files, page_tokens=2)
        driver.admit(0, IDS)
        driver.run((0, 23))
        driver.run((0, 17))
        for _ in range(15):
            driver.run((0, 1))
        (table,) = driver.requests[0].pages
        return driver.requests[0].tokens[40:], table.count(0)

    return run


@pytest.mark.parametrize("name", MASKS)
def test_pages_that_nothing_sees_are_given_back_and_tokens_stay(name, generate) -> None:
    masks, spec_class, sizes = MASKS[name]
    kept, none_gone = generate(masks, FullAttentionSpec, {})
    tokens, gone = generate(masks, spec_class, sizes)
    unmasked, _ = generate({}, FullAttentionSpec, {})
    assert tokens == kept != unmasked
    assert none_gone == 0 < gone


@pytest.mark.parametrize(
    ("name", "masks"),
    [
        ("sinks", {"window": 6, "sink_tokens": 4}),
        ("sinks", {"window": 7, "sink_tokens": 3}),
        ("chunks", {"chunk": 8}),
        ("chunks", {"chunk": None}),
    ],
)
def test_masks_that_show_more_than_is_kept_are_refused(name, masks, tiny, context) -> None:
    files = tiny("llama").files
    layers = DecoderDefinition().build(files, None, "float32", 0).attention_layers("float32")
    facts = DeviceFacts(name="cpu", device="cpu", capability=None, dtypes=("float32",))
    right, spec_class, sizes = MASKS[name]
    fitting = changed(layers, right, spec_class, sizes)
    assert choose_attention(context(files), fitting, facts, "float32", ())
    with pytest.raises(PluginError, match="further back"):
        choose_attention(
            context(files), changed(layers, masks, spec_class, sizes), facts, "float32", ()
        )
