"""SamplingParams: whatever is wrong is an InputError that names the field."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.contracts.pooling import PoolingParams
from framework.contracts.sampling import OutputKind, SamplingParams
from framework.errors import InputError

NAN, INF = math.nan, math.inf
FIELDS = SamplingParams.__struct_fields__
HUGE = 10**5000  # beyond float64, and longer than Python is willing to print


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


# What no numeric field takes, None apart.
NO_NUMBER = ["1", [1], (1,), {}, True, NAN, INF, -INF, HUGE, -HUGE, b"1", 1j, Unprintable()]

WRONG: dict[str, list[object]] = {
    "n": [0, -1, 16_385, 1.0, None, *NO_NUMBER],
    "temperature": [-0.1, 2.1, None, *NO_NUMBER],
    "top_p": [0, 0.0, -0.1, 1.1, None, *NO_NUMBER],
    "top_k": [-2, 2**31, 1.5, None, *NO_NUMBER],
    "min_p": [-0.1, 1.1, None, *NO_NUMBER],
    "presence_penalty": [-2.1, 2.1, None, *NO_NUMBER],
    "frequency_penalty": [-2.1, 2.1, None, *NO_NUMBER],
    "repetition_penalty": [0, 0.0, -1.0, None, *NO_NUMBER],
    "seed": [2**63, -(2**63) - 1, 1.0, *NO_NUMBER],
    "stop": [
        *["", [""], ["a", ""], [1], [None], 1, True, {"a": 1}, {"a"}, b"a", "\ud800", [b"a"]],
        *["a" * 16_385, ["ab"] * 8_193],
    ],
    "stop_token_ids": ["1", 1, [-1], [1.0], ["1"], [True], [None], [[1]], {1: 1}, {1}, NAN],
    "ignore_eos": [0, 1, None, "true", [], NAN],
    "include_stop_str_in_output": [0, 1, None, "true", [], NAN],
    "max_tokens": [-1, 2**31, 1.0, *NO_NUMBER],
    "min_tokens": [-1, 17, 2**31, 1.0, None, *NO_NUMBER],
    "logprobs": [-2, 2**31, 1.0, *NO_NUMBER],
    "prompt_logprobs": [-2, 2**31, 1.0, *NO_NUMBER],
    "skip_special_tokens": [0, 1, None, "true", [], NAN],
    "spaces_between_special_tokens": [0, 1, None, "true", [], NAN],
    "detokenize": [0, 1, None, "true", [], NAN],
    "logit_bias": [
        *[[], [1], "1", 1, True, {"1": 1.0}, {-1: 1.0}, {1.0: 1.0}, {True: 1.0}, {None: 1.0}],
        *[{1: value} for value in (None, "1", True, NAN, INF, -INF, HUGE, 1e300, [1.0])],
    ],
    "bad_words": [
        *["word", 1, True, [""], [1], [None], {"a": 1}, {"a"}, b"a", ["\udfff"]],
        *[["a" * 16_385], ["ab"] * 8_193],
    ],
    "allowed_token_ids": ["1", 1, [], [-1], [1.0], ["1"], [True], [None], {1: 1}, {1}],
    "structured_outputs": [
        *["json", [], 1, True, {}, {"json": None}, {"json": "{}", "regex": "a"}, {"xml": "a"}],
        *[{"json": "{}", 1: 2}, {"json": "{}", "xml": None}, {1: 2, "a": 3}, {"json": object()}],
    ],
    "output_kind": ["all", "", 0, None, True, [], {}, "CUMULATIVE"],
    "truncate_prompt_tokens": [0, -2, -1.0, 2**31, 1.0, *NO_NUMBER],
    "thinking_token_budget": [-1, 2**31, 1.0, *NO_NUMBER],
    "stream_interval": [0, -1, 2**31, 1.0, None, *NO_NUMBER],
    "extra_args": ["a", [], 1, True, {1: 2}, {"a": object()}, {"a": 2**70}, {"a": "\ud800"}],
}

RIGHT: dict[str, list[object]] = {
    "n": [1, 2, 16_384],
    "temperature": [0, 0.0, 1, 2, 2.0, 1e-9],
    "top_p": [1, 1.0, 1e-9],
    "top_k": [-1, 0, 1, 2**31 - 1],
    "min_p": [0, 0.0, 1, 1.0],
    "presence_penalty": [-2, 2.0, 0],
    "frequency_penalty": [-2, 2.0, 0],
    "repetition_penalty": [1e-300, 1, 2**1000],
    "seed": [None, 0, -(2**63), 2**63 - 1],
    "stop": [None, "a", [], ["a", "é\n\0"], ("a",), "a" * 16_384],
    "stop_token_ids": [None, [], [0, 5], (1, 2)],
    "max_tokens": [None, 1, 2**31 - 1],
    "min_tokens": [0, 16],
    "logprobs": [None, 0, -1, 5],
    "prompt_logprobs": [None, 0, -1, 5],
    "logit_bias": [None, {}, {0: 1, 7: -100.0}, {0: 2**64, 7: -(2**100)}],
    "bad_words": [None, [], ["a b"], ("a",)],
    "allowed_token_ids": [None, [0], (3, 4)],
    "structured_outputs": [None, {"regex": "a", "json": None}, {"json": {"type": "object"}}],
    "output_kind": [*OutputKind, *[kind.value for kind in OutputKind]],
    "truncate_prompt_tokens": [None, 1, -1],
    "thinking_token_budget": [None, 0, 5],
    "stream_interval": [1, 2, 2**31 - 1],
    "extra_args": [None, {}, {"plugin": {"x": [1, "a", None]}}],
}


def test_every_field_has_cases_of_wrong_values():
    assert set(WRONG) == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_value_is_an_input_error_that_names_the_field(name):
    for value in WRONG[name]:
        with pytest.raises(InputError) as caught:
            SamplingParams(**{name: value})
        assert caught.value.parameter == name
        assert name in str(caught.value)
        assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_a_right_value_is_kept_as_it_is(name):
    for value in RIGHT[name]:
        assert getattr(SamplingParams(**{name: value}), name) == value


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_a_right_value_can_travel_to_another_process(name):
    for value in RIGHT[name]:
        params = SamplingParams(**{name: value})
        data = msgspec.msgpack.encode(params)
        arrived = msgspec.msgpack.decode(data, type=SamplingParams)
        assert msgspec.msgpack.encode(arrived) == data


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)


@given(name=st.sampled_from(FIELDS), value=JUNK)
@settings(max_examples=400, deadline=None)
def test_any_value_in_any_field_gives_parameters_that_can_travel_or_an_input_error(name, value):
    try:
        params = SamplingParams(**{name: value})
        params.check(1000)
    except InputError as error:
        found = error
    else:
        found = None
    if found is not None:
        assert found.parameter == name
        return
    sent = msgspec.msgpack.encode(params)
    arrived = msgspec.msgpack.encode(msgspec.msgpack.decode(sent, type=SamplingParams))
    # As plain values: a tuple arrives as a list, and 0 as 0.0 where a float is meant.
    assert msgspec.msgpack.decode(arrived) == msgspec.msgpack.decode(sent)


def test_fields_are_checked_against_each_other():
    for wrong, named in [
        ({"n": 2, "temperature": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
        ({"stop": ["a"], "detokenize": False}, "stop"),
    ]:
        with pytest.raises(InputError) as caught:
            SamplingParams(**wrong)
        assert caught.value.parameter == named
    SamplingParams(max_tokens=0, prompt_logprobs=0)
    SamplingParams(max_tokens=3, min_tokens=3)
    SamplingParams(max_tokens=None, min_tokens=99)


def test_ids_and_counts_are_checked_against_the_vocabulary():
    for name, right, wrong in [
        ("stop_token_ids", [0, 9], [10]),
        ("allowed_token_ids", [9], [2**70]),
        ("logit_bias", {9: 1.0}, {10: 1.0}),
        ("logprobs", 10, 11),
        ("prompt_logprobs", -1, 11),
    ]:
        SamplingParams(**{name: right}).check(10)
        with pytest.raises(InputError) as caught:
            SamplingParams(**{name: wrong}).check(10)
        assert caught.value.parameter == name


def test_replace_gives_a_copy_and_validates_it():
    params = SamplingParams(temperature=0.5)
    assert params.replace(top_k=3) == SamplingParams(temperature=0.5, top_k=3)
    with pytest.raises(InputError, match="top_k"):
        params.replace(top_k=-3)


@pytest.mark.parametrize("make", [SamplingParams, SamplingParams().replace, PoolingParams])
def test_a_name_with_a_slip_is_told_with_its_near_matches(make):
    words = r"Params has no field 'truncate_prompt_token' \(did you mean 'truncate_prompt_tokens'"
    with pytest.raises(TypeError, match=words):
        make(truncate_prompt_token=1)
    with pytest.raises(TypeError, match=r"has no field 'nonsense'$"):
        make(nonsense=1)


@pytest.mark.parametrize("name", ["top_k", "max_tokens", "logprobs", "truncate_prompt_tokens"])
def test_a_number_that_is_too_large_is_told_the_largest(name):
    with pytest.raises(InputError, match=f"expected: [^\n]*, at most {2**31 - 1}\n"):
        SamplingParams(**{name: 2**31})


@pytest.mark.parametrize("n", [0, 16385])
def test_a_bound_is_told_once(n):
    with pytest.raises(InputError) as caught:
        SamplingParams(n=n)
    assert caught.value.expected == "an integer in [1, 16384]"


def test_greedy_begins_below_a_temperature_of_1e_5():
    assert SamplingParams(temperature=0).greedy
    assert SamplingParams(temperature=9e-6).greedy
    assert not SamplingParams(temperature=1e-5).greedy


@pytest.mark.parametrize("name", ["temperature", "max_tokens", "seed", "top_k"])
def test_a_number_of_an_array_library_is_told_how_to_become_a_plain_one(name):
    with pytest.raises(InputError, match=r"found: .*float32(.|\n)*mend: .*item\(\)"):
        SamplingParams(**{name: np.float32(1)})


def test_output_kind_becomes_the_member_and_stop_a_tuple():
    assert SamplingParams(output_kind="delta").output_kind is OutputKind.DELTA
    assert SamplingParams(stop="end").stop_strings == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop_strings == ("a", "b")
    assert SamplingParams().stop_strings == ()


def test_an_invalid_message_from_the_wire_is_a_value_error():
    bytes_ = msgspec.msgpack.encode({"temperature": 9.0})
    with pytest.raises(ValueError, match="temperature"):
        msgspec.msgpack.decode(bytes_, type=SamplingParams)
