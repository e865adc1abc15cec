"""The reference backend against attention written out in numpy, in float64."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from framework.contracts.attention_backend import (
    AttentionParams,
    AttentionQuery,
    AttentionSupported,
    CommonMetadata,
)
from framework.contracts.base import Rejected
from framework.contracts.kv_cache_spec import FullAttentionSpec, KVCacheSpec
from framework.contracts.step import CacheGroup
from framework.errors import UnsupportedError
from framework_sdpa import attention
from framework_sdpa.backend import SdpaBackend

QUERY = AttentionQuery(
    platform="cpu",
    dtype="float32",
    cache_dtype="float32",
    head_size=8,
    head_size_v=8,
    num_heads=4,
    num_kv_heads=2,
)


@dataclass(frozen=True)
class Case:
    """rows: (tokens already in the cache, new tokens).  drop: pages before the window have been
    given back: they hold NaN, as the null page does, which stands for them in the table."""

    rows: tuple[tuple[int, int], ...] = ((0, 5), (7, 1), (3, 0), (4, 9))
    page: int = 4
    heads: int = 4
    kv_heads: int = 2
    size: int = 8
    size_v: int = 8
    params: AttentionParams = AttentionParams(scale=0.3)
    causal: bool = True
    drop: bool = False


def naive(q, k, v, past, case):
    """q [n, H, d], k [L, K, d], v [L, K, e] of one row -> [n, H, e]; loops, float64."""
    p, length = case.params, len(k)
    out = np.zeros((len(q), case.heads, case.size_v))
    for i in range(len(q)):
        for h in range(case.heads):
            kv = h // (case.heads // case.kv_heads)
            scores, at = [], []
            for j in range(length):
                distance = past + i - j
                if case.causal and distance < 0:
                    continue
                if p.window is not None and distance >= p.window:
                    continue
                score = float(q[i, h] @ k[j, kv]) * p.scale
                if p.softcap is not None:
                    score = p.softcap * np.tanh(score / p.softcap)
                if p.alibi_slopes is not None:
                    score += float(p.alibi_slopes[h]) * -distance
                scores.append(score)
                at.append(j)
            weights = np.exp(scores)
            total = weights.sum() + (np.exp(float(p.sinks[h])) if p.sinks is not None else 0)
            out[i, h] = (weights / total) @ v[at, kv]
    return out


def run(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(what the backend gives, what is right), each [T, H, e]."""
    rng = np.random.default_rng(seed)
    lengths = [past + new for past, new in case.rows]
    backend = SdpaBackend()
    spec = FullAttentionSpec(
        num_kv_heads=case.kv_heads, head_size=case.size, head_size_v=case.size_v, dtype="float32"
    )
    needed = [-(-length // case.page) for length in lengths]
    ids = rng.permutation(np.arange(1, sum(needed) + 1))
    layout = backend.layout(spec, case.page, sum(needed) + 1)
    cache = torch.full(layout.shape, float("nan"))
    table = np.zeros((len(case.rows), max(needed) + 1), np.int32)
    for row, start in enumerate(np.cumsum([0, *needed[:-1]])):
        table[row, : needed[row]] = ids[start : start + needed[row]]
    q, k, v, slots, right = [], [], [], [], []
    for row, (past, new) in enumerate(case.rows):
        length = past + new
        keys = rng.normal(size=(length, case.kv_heads, case.size))
        values = rng.normal(size=(length, case.kv_heads, case.size_v))
        queries = rng.normal(size=(new, case.heads, case.size))
        where = [int(table[row, p // case.page]) * case.page + p % case.page for p in range(length)]
        attention.write(
            torch.tensor(keys[:past]).float(),
            torch.tensor(values[:past]).float(),
            cache,
            torch.tensor(where[:past], dtype=torch.int64),
        )
        q.append(queries)
        k.append(keys[past:])
        v.append(values[past:])
        slots += where[past:]
        right.append(naive(queries, keys, values, past, case))
    for row, (past, _) in enumerate(case.rows if case.drop else ()):
        gone = max(0, past - case.params.window + 1) // case.page
        cache[table[row, :gone].astype(np.int64)] = float("nan")
        table[row, :gone] = 0
    starts = np.cumsum([0, *(new for _, new in case.rows)]).astype(np.int32)
    common = CommonMetadata(
        query_starts=torch.from_numpy(starts),
        lengths=torch.tensor(lengths, dtype=torch.int32),
        page_table=torch.from_numpy(table),
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        query_starts_host=starts,
        lengths_host=np.array(lengths, np.int32),
        max_query=max(new for _, new in case.rows),
        max_length=max(lengths),
        causal=case.causal,
    )
    builder = backend.builder(CacheGroup(spec=spec, layers=("a",), page_tokens=case.page))
    out = torch.full((len(slots), case.heads, case.size_v), float("nan"))
    tensors = [torch.tensor(np.concatenate(x)).float() for x in (q, k, v)]
    backend.run(*tensors, cache, builder.plan(common), case.params, out)
    return out.numpy(), np.concatenate(right)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
CASES = {
    "plain": Case(),
    "one head each": Case(kv_heads=4),
    "one kv head": Case(kv_heads=1),
    "page of one": Case(page=1),
    "odd page": Case(page=7),
    "page over all": Case(page=64),
    "head sizes differ": Case(size=8, size_v=3),
    "window": Case(params=AttentionParams(scale=0.3, window=3)),
    "window of one": Case(params=AttentionParams(scale=0.3, window=1)),
    "window over all": Case(params=AttentionParams(scale=0.3, window=100)),
    "softcap": Case(params=AttentionParams(scale=0.9, softcap=0.7)),
    "sinks": Case(params=AttentionParams(scale=0.3, sinks=torch.tensor([0.0, 1.0, -2.0, 3.0]))),
    "alibi": Case(params=AttentionParams(scale=0.3, alibi_slopes=SLOPES)),
    "all at once": Case(
        params=AttentionParams(
            scale=0.3, window=5, softcap=1.0, sinks=torch.ones(4), alibi_slopes=SLOPES
        )
    ),
    "pages before the window dropped": Case(
        rows=((30, 1), (0, 6), (17, 9), (40, 0), (5, 3)),
        params=AttentionParams(scale=0.3, window=6),
        drop=True,
    ),
    "dropped, window of one": Case(
        rows=((16, 1), (15, 2), (33, 7)), params=AttentionParams(scale=0.3, window=1), drop=True
    ),
    "dropped, all at once": Case(
        rows=((29, 1), (21, 13), (3, 1)),
        page=3,
        params=AttentionParams(
            scale=0.3, window=5, softcap=1.0, sinks=torch.ones(4), alibi_slopes=SLOPES
        ),
        drop=True,
    ),
    "bidirectional": Case(causal=False),
    "no rows with queries": Case(rows=((3, 0),)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_feature_equals_attention_written_out(name: str) -> None:
    got, right = run(CASES[name])
    assert got.shape == right.shape
    np.testing.assert_allclose(got, right, atol=2e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_queries_taken_in_pieces_change_nothing(monkeypatch, window: int | None) -> None:
    monkeypatch.setattr(attention, "SCORE_ELEMENTS", 100)
    params = AttentionParams(scale=0.3, window=window)
    case = Case(rows=((5, 20), (0, 17)), params=params, drop=window is not None)
    got, right = run(case)
    np.testing.assert_allclose(got, right, atol=2e-5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensor_api", "jax"),
        ("dtype", "int8"),
        ("cache_dtype", "float8_e4m3"),
        ("layer_type", "cross"),
        ("mask", "mixed"),
        ("chunk", 0),
        ("sink_tokens", 4),
        ("mla", True),
        ("cascade", True),
        ("context_parallel", 2),
        ("graph_mode", "full"),
        ("num_heads", 3),
        ("page_tokens", 0),
    ],
)
def test_what_it_cannot_do_is_rejected_by_field(field: str, value: object) -> None:
    answer = SdpaBackend().answer(replace(QUERY, **{field: value}))
    assert isinstance(answer, Rejected)
    assert [reason.field for reason in answer.reasons] == [field]


def test_all_reasons_are_given_at_once() -> None:
    answer = SdpaBackend().answer(replace(QUERY, mla=True, cascade=True))
    assert isinstance(answer, Rejected)
    assert {reason.field for reason in answer.reasons} == {"mla", "cascade"}


def test_any_page_size_is_served_when_asked_for() -> None:
    offered = SdpaBackend().answer(QUERY)
    assert isinstance(offered, AttentionSupported)
    assert offered.page_tokens[0] == 16
    agreed = SdpaBackend().answer(replace(QUERY, page_tokens=13))
    assert isinstance(agreed, AttentionSupported)
    assert agreed.page_tokens == (13,)


def test_a_spec_of_another_kind_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="FullAttentionSpec"):
        SdpaBackend().layout(KVCacheSpec(), 16, 4)
