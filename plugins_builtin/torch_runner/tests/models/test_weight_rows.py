"""Weights that are read some rows at a time: out of files, and from a model that waits for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize
from safetensors.torch import load_file, save_file

from framework.contracts.kernel import Prepared
from framework.contracts.model_source import ModelFiles
from framework.errors import ModelError
from framework_torch.gguf.loader import GgufLoader
from framework_torch.kernels.sources import sources_of
from framework_torch.models.definition import DecoderDefinition
from framework_torch.models.file_rows import FileRows
from framework_torch.progress import with_progress
from framework_torch.weights.safetensors_loader import SafetensorsLoader

RANGES = ((0, 1), (0, 40), (3, 5), (39, 40), (17, 40))


def files(path: Path) -> ModelFiles:
    kind = path.suffix[1:]
    return ModelFiles(name="m", root=path.parent, weights=(path,), format=kind, config={})


def open_gguf(folder: Path):
    values = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    writer = GGUFWriter(folder / "m.gguf", "llama")
    writer.add_tensor("f32", values)
    writer.add_tensor("f16", values.astype(np.float16))
    writer.add_tensor("f64", values.astype(np.float64))
    for name in ("BF16", "Q8_0", "Q4_0", "Q5_1"):
        kind = GGMLQuantizationType[name]
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "m.gguf", GgufLoader()


def open_safetensors(folder: Path):
    torch.manual_seed(0)
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
    tensors = {str(dtype): torch.randn(40, 64).to(dtype) for dtype in types}
    save_file(tensors, folder / "m.safetensors")
    return folder / "m.safetensors", SafetensorsLoader()


@pytest.mark.parametrize("make", [open_gguf, open_safetensors])
def test_rows_are_those_of_the_whole(tmp_path, make) -> None:
    path, loader = make(tmp_path)
    weights = loader.open(files(path))
    for name in weights.names():
        whole = weights.get(name)
        for start, stop in RANGES:
            part = weights.rows(name, start, stop)
            assert part.dtype is whole.dtype
            assert torch.equal(part.double(), whole[start:stop].double()), (name, start)


@pytest.mark.parametrize("make", [open_gguf, open_safetensors])
def test_rows_of_a_file_that_became_shorter_are_an_error(tmp_path, make) -> None:
    path, loader = make(tmp_path)
    weights = loader.open(files(path))
    name = "f32" if path.suffix == ".gguf" else "torch.float32"
    path.write_bytes(path.read_bytes()[:1500])
    with pytest.raises(ModelError, match=f"(?s)tensor '{name}'.*cannot be read"):
        weights.rows(name, 39, 40)


def test_parts_lie_one_below_the_other(tmp_path) -> None:
    parts = {"a": torch.randn(3, 4), "b": torch.randn(5, 4), "c": torch.randn(1, 4)}
    save_file(parts, tmp_path / "m.safetensors")
    weights = SafetensorsLoader().open(files(tmp_path / "m.safetensors"))
    whole = torch.cat([*parts.values()]).to(torch.bfloat16)
    named = [(name, len(part)) for name, part in parts.items()]
    rows = FileRows(weights, named, (9, 4), torch.bfloat16)
    for start in range(9):
        for stop in range(start + 1, 10):
            assert torch.equal(rows.read(start, stop), whole[start:stop])


def build(model, folder: Path | None = None, weights: object = None):
    found = model.files if folder is None else files(folder / "model.safetensors")
    given = SafetensorsLoader().open(found) if weights is None else weights
    return DecoderDefinition().build(model.files, given, "float32", 0)


class Once:
    """Weights that count what is read of them as a whole."""

    naming = "hf"

    def __init__(self, inner) -> None:
        self.inner, self.read = inner, []
        self.names, self.shape, self.source = inner.names, inner.shape, inner.source
        self.get = inner.get
        self.rows = self.some

    def some(self, name, start, stop):
        self.read.append((name, start, stop))
        return self.inner.rows(name, start, stop)


def test_a_shared_weight_that_is_taken_by_rows_is_never_made_as_a_whole(tiny) -> None:
    model = tiny("gemma3")
    weights = Once(SafetensorsLoader().open(model.files))
    decoder = build(model, weights=weights)
    head = decoder.operators()["head"]
    (source,) = sources_of(head).values()
    expected = weights.get("model.embed_tokens.weight")
    assert source.shape == tuple(expected.shape)
    assert torch.equal(source.rows(2, 7), expected[2:7])
    assert ("model.embed_tokens.weight", 2, 7) in weights.read
    kept = source.rows(0, len(expected)).clone()
    head.adopt(
        Prepared(
            call=lambda x: x @ kept.T, keeps_weights=False, num_bytes=1, rows=lambda ids: kept[ids]
        )
    )
    assert head.deferred("weight") is None
    assert decoder.embedding.deferred("weight") is None
    assert decoder.embedding.weight is None
    ids = torch.tensor([3, 1])
    assert torch.equal(decoder.embed(ids), build(model).embed(ids))


def test_a_shared_weight_that_is_asked_for_is_made_once(tiny) -> None:
    decoder = build(tiny("gemma3"))
    (source,) = sources_of(decoder.operators()["head"]).values()
    whole = source.whole()
    assert whole is decoder.head.weight
    assert whole is decoder.embedding.weight
    assert sources_of(decoder.operators()["head"])["weight"] is whole


def test_an_embedding_whose_rows_a_kernel_does_not_give_keeps_its_own(tiny) -> None:
    model = tiny("gemma3")
    decoder = build(model)
    decoder.operators()["head"].adopt(Prepared(call=id, keeps_weights=False, num_bytes=1))
    assert decoder.embedding.deferred("weight") is None
    ids = torch.tensor([3, 1])
    assert torch.equal(decoder.embed(ids), build(model).embed(ids))


@pytest.mark.parametrize("row", [0, -1])
def test_a_tied_tensor_that_differs_in_one_row_is_an_error(tiny, tmp_path, row) -> None:
    model = tiny("gemma3")
    tensors = load_file(model.root / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, tmp_path / "model.safetensors")
    assert build(model, tmp_path).head.weight is not None
    tensors["lm_head.weight"][row, 0] += 1
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="tied"):
        build(model, tmp_path)


def test_weights_that_cannot_be_read_by_rows_are_made_as_a_whole(tiny) -> None:
    model = tiny("gemma3")
    weights = Once(SafetensorsLoader().open(model.files))
    del weights.rows
    decoder = build(model, weights=weights)
    found = sources_of(decoder.operators()["head"])["weight"]
    assert found is decoder.embedding.weight


def test_progress_counts_a_tensor_that_is_read_by_rows_once(tmp_path, capsys) -> None:
    path, loader = open_safetensors(tmp_path)
    weights, read = loader.open(files(path)), []
    with with_progress(weights) as watched:
        watched._read = lambda: read.append(1)
        name = next(iter(watched.names()))
        watched.rows(name, 0, 20)
        assert read == []
        watched.rows(name, 20, 40)
    assert read == [1]
