"""What cpu_paged refuses: what the part in C, which has addresses alone, would misread."""

from dataclasses import replace

import pytest
import torch

from attention_backends.cpu_paged.tests.house import House, with_one_changed
from framework.contracts.attention_backend import AttentionParams, AttentionQuery
from framework.contracts.base import Rejected
from framework.errors import UnsupportedError
from framework_cpu_paged.answer import answer

pytest.importorskip("framework_cpu_paged._native", reason="no C compiler built it")

QUERY = AttentionQuery(
    platform="cpu",
    dtype="float32",
    cache_dtype="float32",
    head_size=64,
    head_size_v=64,
    num_heads=9,
    num_kv_heads=3,
)
PARAMS = AttentionParams(scale=0.2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("head_size_v", 24),
        ("page_tokens", 8),
        ("num_heads", 99),
        ("layer_type", "cross"),
        ("cache_dtype", "float8_e4m3"),
        ("mla", True),
        ("capability", (9, 0)),  # tensors of a GPU are nothing for C
    ],
)
def test_what_it_cannot_do_is_rejected_by_name(field, value):
    found = answer(replace(QUERY, **{field: value}))
    assert isinstance(found, Rejected)
    assert field in [reason.field for reason in found.reasons]
    assert all(reason.remedy for reason in found.reasons)


def test_too_many_heads_are_refused_before_anything_is_written():
    house = House(heads=66, kv_heads=2)
    with pytest.raises(UnsupportedError, match="number of heads"):
        house.step([(house.request(4, 1), 0, 4)], PARAMS)
    assert house.cache.isnan().all()


# q [T, 6, 32], k, v [T, 2, 32], a cache [pages, 2, 16 * 64], and out as q: one of them is changed.
MISFITS = {
    "queries of another type": ("q", lambda t: t.half()),
    "keys of another type": ("k", lambda t: t.half()),
    "values of another type": ("v", lambda t: t.bfloat16()),
    "a result of another type": ("out", lambda t: t.bfloat16()),
    "integers": ("q", lambda t: t.int()),
    "queries elsewhere": ("q", lambda t: t.to("meta")),
    "a cache elsewhere": ("cache", lambda t: t.to("meta")),
    "fewer keys": ("k", lambda t: t[:-1]),
    "fewer values": ("v", lambda t: t[:-1]),
    "fewer queries": ("q", lambda t: t[:-1]),
    "a short result": ("out", lambda t: t[:-1]),
    "keys of fewer heads": ("k", lambda t: t[:, :1]),
    "narrow keys": ("k", lambda t: t[..., :16].contiguous()),
    "a narrow result": ("out", lambda t: t[..., :16].contiguous()),
    "a result of fewer heads": ("out", lambda t: t[:, :3].contiguous()),
    "no heads": ("q", lambda t: t[:, :0]),
    "no KV heads": ("v", lambda t: t[:, :0]),
    "queries without heads": ("q", lambda t: t.flatten(1)),
    "scattered queries": ("q", lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)),
    "scattered keys": ("k", lambda t: t.repeat(1, 1, 2)[..., ::2]),
    "scattered values": ("v", lambda t: t.repeat(1, 2, 1)[:, ::2]),
    "a scattered result": ("out", lambda t: t.repeat(1, 2, 1)[:, :6]),
    "a cache of other heads": ("cache", lambda t: t[:, :1]),
    "a cache of smaller pages": ("cache", lambda t: t[..., :512]),
    "a cache of whole tokens": ("cache", lambda t: t.flatten(1)),
}


@pytest.mark.parametrize("changed", MISFITS)
def test_tensors_that_the_part_in_c_would_misread_are_refused(changed):
    """It has addresses alone, and would read or write beyond them."""
    house = House()
    house.backend.run = with_one_changed(house.backend.run, *MISFITS[changed])
    with pytest.raises(UnsupportedError, match="the cpu_paged backend does not serve this"):
        house.step([(house.request(4, 1), 0, 4)], PARAMS)
    assert house.cache.isnan().all()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("query_starts", lambda t: t.long()),
        ("query_starts", lambda t: t[:-1]),
        ("lengths", lambda t: t.long()),
        ("lengths", lambda t: t.to("meta")),
        ("page_table", lambda t: t.long()),
        ("page_table", lambda t: t[:-1]),
        ("page_table", lambda t: t[0]),
        ("slot_mapping", lambda t: t.int()),
        ("slot_mapping", lambda t: t[None]),
    ],
)
def test_metadata_that_the_part_in_c_would_misread_is_refused(field, change):
    house = House()
    plan = house.builder.plan

    def changed(common):
        return plan(replace(common, **{field: change(getattr(common, field))}))

    house.builder.plan = changed
    with pytest.raises(UnsupportedError, match=f"of {field.replace('_', ' ')}"):
        house.step([(house.request(4, 1), 0, 4)], PARAMS)


@pytest.mark.parametrize(
    "changes",
    [
        {"sinks": torch.zeros(5)},
        {"alibi_slopes": torch.zeros(6, 2)},
        {"sinks": torch.zeros(6, device="meta")},
        {"window": 0},
        {"chunk": -1},
    ],
)
def test_parameters_of_a_layer_that_do_not_fit_are_refused(changes):
    house = House()
    with pytest.raises(UnsupportedError, match=next(iter(changes))):
        house.step([(house.request(4, 1), 0, 4)], replace(PARAMS, **changes))
    assert house.cache.isnan().all()


def test_pages_of_a_size_that_is_not_served_have_no_builder():
    with pytest.raises(UnsupportedError, match="page size"):
        House(page_tokens=8)
