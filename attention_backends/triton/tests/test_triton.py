"""What can be said of the backend where no kernel runs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from framework.contracts.attention_backend import AttentionQuery, AttentionSupported
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import FullAttentionSpec, KVCacheSpec, MLASpec
from framework.errors import UnsupportedError
from framework.plugins.registry import PluginRegistry
from framework.plugins.selection import select
from framework_triton import answer as answering
from framework_triton.backend import TritonBackend
from framework_triton.work import SPLIT, tiles_of

GPU = AttentionQuery(
    platform="somewhere",
    features=frozenset({"triton"}),
    dtype="bfloat16",
    cache_dtype="bfloat16",
    head_size=64,
    head_size_v=64,
    num_heads=8,
    num_kv_heads=2,
)
CPU = replace(GPU, platform="cpu", features=frozenset({"avx2"}), dtype="float32")


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def fields(found: object) -> list[str]:
    assert isinstance(found, Rejected)
    return [reason.field for reason in found.reasons]


def test_it_serves_a_platform_that_has_triton_and_no_other() -> None:
    found = answering.answer(GPU, installed=lambda: True)
    assert isinstance(found, AttentionSupported)
    assert found.batch_invariant
    rejected = answering.answer(CPU, installed=lambda: True)
    assert fields(rejected) == ["platform"]
    assert "TRITON_INTERPRET=1" in str(rejected.reasons[0])


def test_without_triton_the_answer_says_how_to_get_it() -> None:
    rejected = answering.answer(GPU, installed=lambda: False)
    assert fields(rejected) == ["tensor_api"]
    assert "pip install triton" in str(rejected.reasons[0])


@pytest.mark.parametrize("word", ["1", "true", "ON"])
def test_in_the_interpreter_it_serves_a_processor(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", word)
    found = answering.answer(CPU, installed=lambda: True)
    assert isinstance(found, AttentionSupported)
    assert "slowly" in found.note
    # Even so a processor's own backends come first, by rank alone.
    registry = PluginRegistry()
    assert select(registry, "attention_backend", CPU).record.name != "triton"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_api", "jax"),
        ("dtype", "int8"),
        ("cache_dtype", "float8_e4m3"),
        ("layer_type", "encoder_only"),
        ("mask", "mixed"),
        ("window", 0),
        ("chunk", 0),
        ("sink_tokens", 4),
        ("head_size", 0),
        ("head_size", 257),
        ("head_size_v", 512),
        ("mla", True),
        ("cascade", True),
        ("context_parallel", 2),
        ("graph_mode", "full"),
        ("num_heads", 3),
        ("num_heads", 258),
        ("page_tokens", 0),
    ],
)
def test_what_it_cannot_do_is_rejected_by_field(field: str, value: object) -> None:
    rejected = answering.answer(replace(GPU, **{field: value}), installed=lambda: True)
    assert fields(rejected) == [field]


@pytest.mark.parametrize(
    ("spec", "page_tokens", "about"),
    [
        (KVCacheSpec(), 16, "kind of cache"),
        (MLASpec(latent_size=8, rope_size=4, dtype="float32"), 16, "kind of cache"),
        ((8, 8, "float8_e5m2"), 16, "type of cache"),
        ((8, 8, "float32"), 0, "page size"),
        ((257, 8, "float32"), 16, "size of a head"),
        ((8, 512, "float32"), 16, "size of a head"),
    ],
)
def test_a_cache_that_it_cannot_store_is_refused(
    spec: KVCacheSpec | tuple[int, int, str], page_tokens: int, about: str
) -> None:
    if isinstance(spec, tuple):
        size, size_v, dtype = spec
        spec = FullAttentionSpec(num_kv_heads=2, head_size=size, head_size_v=size_v, dtype=dtype)
    with pytest.raises(UnsupportedError, match=about):
        TritonBackend().layout(spec, page_tokens, 4)


RUN = """
import numpy as np, torch
from framework.contracts.attention_backend import AttentionParams, CommonMetadata
from framework.contracts.kv_cache_spec import FullAttentionSpec
from framework.contracts.step import CacheGroup
from framework_triton.backend import TritonBackend
{before}
spec = FullAttentionSpec(num_kv_heads=1, head_size=16, head_size_v=16, dtype="float32")
backend = TritonBackend()
layout = backend.layout(spec, 16, 2)
starts, lengths = np.array([0, 1], np.int32), np.array([1], np.int32)
plan = backend.builder(CacheGroup(layers=("0",), spec=spec, page_tokens=16)).plan(CommonMetadata(
    query_starts=torch.from_numpy(starts), lengths=torch.from_numpy(lengths),
    page_table=torch.ones(1, 1, dtype=torch.int32), slot_mapping=torch.tensor([16]),
    query_starts_host=starts, lengths_host=lengths, max_query=1, max_length=1))
cache, x = torch.zeros(layout.shape), torch.ones(1, 1, 16)
try:
    backend.run(x, x, x, cache, plan, AttentionParams(scale=1.0), torch.empty_like(x))
except Exception as error:
    print(type(error).__name__, error)
print("written", bool(cache.any()))
"""
LATE = "import os, triton\nos.environ['TRITON_INTERPRET'] = '1'"
needs_triton = pytest.mark.skipif(
    not answering.triton_is_installed(), reason="triton is for Linux only"
)


@needs_triton
def test_tensors_on_a_processor_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    exec(RUN.format(before=""), {})
    said = capsys.readouterr().out
    assert "UnsupportedError" in said
    assert "or TRITON_INTERPRET=1" in said
    assert "written False" in said


@needs_triton
def test_an_interpreter_that_is_switched_on_too_late_is_refused() -> None:
    code = RUN.format(before=LATE)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "UnsupportedError" in ended.stdout
    assert "before the process starts" in ended.stdout
    assert "written False" in ended.stdout


def test_tiles_cover_each_token_once_and_pieces_each_key() -> None:
    starts = np.array([0, 1, 1, 6, 106, 110, 111], np.int32)
    lengths = np.array([2 * SPLIT + 1, 7, SPLIT, 400, 4 * SPLIT, 1], np.int32)
    small, large = tiles_of(starts, lengths, 3)  # 3 heads take the place of 4
    assert (small.rows, large.rows) == (16, 64)
    assert small.whole.tolist() == [[5], [110]]
    assert small.merged.tolist() == [[0, 4], [0, 106], [0, 3], [3, 4]]
    keys = [0, SPLIT, 2 * SPLIT, 0, SPLIT, 2 * SPLIT, 3 * SPLIT]
    assert small.pieces.tolist() == [[0] * 3 + [4] * 4, [0] * 3 + [106] * 4, keys]
    firsts = [1, *range(6, 106, 16)]
    assert large.whole.tolist() == [[2] + [3] * 7, firsts]
    assert large.pieces.shape[1] == large.merged.shape[1] == 0


def test_where_a_row_is_cut_does_not_depend_on_those_beside_it() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, 40, 30).astype(np.int32)
    lengths = (tokens + rng.integers(0, 3 * SPLIT, 30)).astype(np.int32)
    starts = np.concatenate(([0], np.cumsum(tokens))).astype(np.int32)
    together = tiles_of(starts, lengths, 4)
    for row in range(30):
        alone = tiles_of(np.array([0, tokens[row]], np.int32), lengths[row : row + 1], 4)
        for all_, one in zip(together, alone, strict=True):
            for name in ("whole", "pieces"):
                work = getattr(all_, name)
                mine = work[:, work[0] == row]
                mine = np.concatenate((mine[1:2] - starts[row], mine[2:]))
                assert mine.tolist() == getattr(one, name)[1:].tolist()
