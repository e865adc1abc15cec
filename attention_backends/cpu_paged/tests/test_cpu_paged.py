"""What the conformance suite of attention backends does not see of cpu_paged.

That it is right, and refuses what it rejects, is in the suite, which is run as a whole.
"""

import itertools
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attention_backends.cpu_paged.tests.house import House, with_one_changed
from framework.contracts.attention_backend import (
    AttentionParams,
    AttentionQuery,
    AttentionSupported,
)
from framework.contracts.base import Rejected
from framework.testing.conformance import check
from framework_cpu_paged.answer import VARIABLE, answer

_native = pytest.importorskip("framework_cpu_paged._native", reason="no C compiler built it")

QUERY = AttentionQuery(
    platform="cpu",
    dtype="float32",
    cache_dtype="float32",
    head_size=64,
    head_size_v=64,
    num_heads=9,
    num_kv_heads=3,
)


def direct(request, params):
    """In float64, by the definition."""
    q, k, v = (t.double() for t in request[:3])
    heads, kv_heads = q.shape[1], k.shape[1]
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = torch.einsum("nhd,lhd->hnl", q, k) * params.scale
    if params.softcap:
        scores = params.softcap * torch.tanh(scores / params.softcap)
    at = torch.arange(len(q))
    hidden = at[None, :] > at[:, None]
    if params.window:
        hidden |= at[None, :] <= at[:, None] - params.window
    weights = torch.softmax(scores.masked_fill(hidden, -math.inf), -1)
    return torch.einsum("hnl,lhd->nhd", weights, v)


PARAMS = AttentionParams(scale=0.2)


def test_it_conforms():
    report = check("attention_backend:cpu_paged")
    assert report.conformant, report.text()


VARIANTS = [PARAMS, replace(PARAMS, window=300), replace(PARAMS, softcap=2.0, window=40)]


@pytest.mark.parametrize("params", VARIANTS)
def test_long_contexts_equal_the_definition(params):
    """Longer than a part, so that parts are merged."""
    house = House()
    request = house.request(2 * _native.part_tokens + 77, 1)
    (found,) = house.step([(request, 0, len(request[0]))], params)
    assert (found.double() - direct(request, params)).abs().max() < 2e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("params", VARIANTS)
def test_a_row_is_the_same_bit_for_bit_whatever_its_chunks_and_mates(params, dtype):
    """In chunks of any size, beside others or alone, in other pages, with one thread or two."""
    length = _native.part_tokens + 150
    house = House(dtype=dtype)
    request = house.request(length, 1)
    (whole,) = house.step([(request, 0, length)], params)
    other = House(dtype=dtype)
    mates = [other.request(n, 10 + n) for n in (5, 90, _native.part_tokens + 1)]
    mine = (*request[:3], [other.free.pop() for _ in request[3]])
    ends = [0, 1, 40, 57, 300, length - 3, length - 2, length - 1, length]
    threads = torch.get_num_threads()
    try:
        for turn, (first, last) in enumerate(itertools.pairwise(ends)):
            torch.set_num_threads(1 + turn % 2)
            rows = [(mate, 0, len(mate[0])) for mate in mates[: turn % 4]]
            rows.insert(turn % (len(rows) + 1), (mine, first, last))
            found = other.step(rows, params)[turn % len(rows)]
            assert torch.equal(found, whole[first:last]), (first, last)
    finally:
        torch.set_num_threads(threads)


def test_many_single_queries_share_threads():
    house = House(pages=900)
    lengths = [1, 15, 16, 17, 511, 512, 513, 1025, 2048]
    requests = [house.request(n, n) for n in lengths]
    for request in requests:
        house.step([(request, 0, len(request[0]))], PARAMS)
    found = house.step([(r, len(r[0]) - 1, len(r[0])) for r in requests], PARAMS)
    for request, row in zip(requests, found, strict=True):
        assert (row.double() - direct(request, PARAMS)[-1:]).abs().max() < 2e-6


def test_no_number_shows_in_its_own_row_alone():
    house = House()
    good, bad = house.request(40, 1), house.request(40, 2)
    bad[1][7, 0, 3] = math.nan
    found, broken = house.step([(good, 0, 40), (bad, 0, 40)], PARAMS)
    assert (found.double() - direct(good, PARAMS)).abs().max() < 2e-6
    assert torch.isfinite(broken[:7]).all()
    assert broken[7:, :3].isnan().all()
    assert torch.isfinite(broken[:, 3:]).all()


def test_a_step_without_queries_and_a_row_without_any():
    house = House()
    one, two = house.request(20, 1), house.request(20, 2)
    house.step([(two, 0, 20)], PARAMS)
    found, none = house.step([(one, 0, 20), (two, 20, 20)], PARAMS)
    assert none.shape[0] == 0
    assert (found.double() - direct(one, PARAMS)).abs().max() < 2e-6


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc")
def test_the_threads_are_torchs_own():
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "omp" in line}
    pools = {path for path in loaded if path.rsplit("/", 1)[-1].startswith(("libgomp", "libiomp"))}
    assert pools == {_native.pool_library}


@pytest.mark.parametrize(
    ("features", "cache_dtype", "instructions", "preferred"),
    [
        ({"avx2", "f16c", "fma"}, "float32", "", ("float16",)),
        ({"avx2", "f16c"}, "float16", "", ()),
        ({"avx2", "f16c"}, "bfloat16", "", ()),
        ({"avx", "f16c"}, "float32", "", ()),
        (set(), "float32", "", ()),
        ({"avx2", "f16c"}, "float32", "plain", ()),
    ],
)
def test_fp16_is_preferred_where_the_processor_reads_it_as_fast(
    features, cache_dtype, instructions, preferred, monkeypatch
):
    monkeypatch.setenv(VARIABLE, instructions)
    asked = replace(QUERY, features=frozenset(features), cache_dtype=cache_dtype)
    assert answer(asked).cache_dtypes == preferred


def test_without_its_part_in_c_it_says_what_to_install():
    assert isinstance(answer(QUERY), AttentionSupported)
    found = answer(QUERY, built=lambda: False)
    assert isinstance(found, Rejected)
    assert "compiler" in str(found.reasons[0])


@pytest.mark.long
def test_it_installs_without_a_compiler(tmp_path):
    source = Path(__file__).parents[1]
    built = shutil.ignore_patterns("*.so", "build", "*.egg-info")
    shutil.copytree(source, tmp_path / "source", ignore=built)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "CC": "/no/compiler"}
    target = tmp_path / "target"
    subprocess.run([*pip, "--target", target, tmp_path / "source"], check=True, env=environment)
    look = "from framework_cpu_paged.answer import native_is_built as built; print(built())"
    found = subprocess.run(
        [sys.executable, "-c", look], cwd=target, capture_output=True, text=True, check=True
    )
    assert found.stdout == "False\n"


def test_places_of_single_heads_and_numbers_may_be_any():
    """Torch gives a dimension of one place whatever stride it likes."""
    params = AttentionParams(scale=1.0)
    usual = House(heads=1, kv_heads=1, size=16)
    request = usual.request(4, 1)
    (right,) = usual.step([(request, 0, 4)], params)
    odd = House(heads=1, kv_heads=1, size=16)
    odd.backend.run = with_one_changed(
        odd.backend.run, "q", lambda t: t.as_strided(t.shape, (16, 99, 1))
    )
    (found,) = odd.step([(odd.request(4, 1), 0, 4)], params)
    assert torch.equal(found, right)
