"""Tiny random models, their references, and the demo model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.gemma import gemma_file
from tests.parity.tiny import Tiny, make_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tiny]:
    """tiny(architecture): a random model on disk and transformers' answers to its prompts."""
    made: dict[str, Tiny] = {}

    def get(name: str) -> Tiny:
        if name not in made:
            made[name] = make_tiny(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture
def engine(tiny: Callable[[str], Tiny]) -> Iterator[Callable[..., Any]]:
    """Makes an LLM over the tiny model of an architecture; all are closed at the end."""
    from framework import LLM

    opened: list[Any] = []

    def make(name: str, **options: Any) -> Any:
        llm = LLM(tiny(name).folder, dtype="float32", **options)
        opened.append(llm)
        return llm

    yield make
    for llm in opened:
        llm.close()


def read_goldens(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((Path(__file__).parent / name).read_text())["rows"]
    return rows


@pytest.fixture(scope="session")
def goldens() -> list[dict[str, Any]]:
    """References of the demo model; see make_goldens.py."""
    return read_goldens("smollm2.json")


@pytest.fixture(scope="session")
def gemma_goldens() -> list[dict[str, Any]]:
    """References of Gemma 3 270M."""
    return read_goldens("gemma3.json")


@pytest.fixture(scope="session")
def gemma_path(request: pytest.FixtureRequest) -> Path:
    """The .gguf of Gemma 3 270M, in pytest's cache, where the next run finds it again."""
    return gemma_file(request.config.cache.mkdir("gemma3"))


@pytest.fixture(scope="session")
def gemma(gemma_path: Path) -> Iterator[Any]:
    """Gemma 3 270M in plain float32, its prompts in several chunks."""
    from framework import LLM

    with LLM(
        gemma_path, dtype="float32", max_model_len=1024, max_num_seqs=8, max_num_batched_tokens=256
    ) as llm:
        yield llm


@pytest.fixture(scope="session")
def demo() -> Iterator[Any]:
    """The demo model in plain float32."""
    from framework import LLM

    with LLM("demo", dtype="float32", max_model_len=1024, max_num_seqs=64) as llm:
        yield llm
