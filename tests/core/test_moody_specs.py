"""A spec that fails, or changes its mind, ends the request it was asked about and no other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

from framework.contracts.kv_cache_spec import CrossAttentionSpec, FullAttentionSpec
from framework.errors import FrameworkError, InputError, PluginError

HEADS = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 1, "dtype": "float32"}


class Mood:
    """Which call is answered otherwise, and with what."""

    def __init__(self):
        self.calls, self.at, self.answer = 0, None, None

    def over(self, answer):
        self.calls += 1
        return self.answer if self.calls == self.at else answer


MOOD = Mood()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moody(CrossAttentionSpec):
    def max_pages(self, length, page_tokens, step_tokens):
        answer = MOOD.over(-(-self.encoder_length // page_tokens))
        if answer == "fails":
            raise RuntimeError("boom")
        return answer


def story(engine, at, answer):
    """Four requests; the spec's call number `at` after the start is answered with `answer`."""
    MOOD.__init__()
    layers = {"full": FullAttentionSpec(**HEADS), "cross": Moody(**HEADS, encoder_length=9)}
    one = engine(
        runner={"layers": layers, "num_pages": 40, "max_model_len": 30},
        max_num_seqs=3,
        whole_sequence_must_fit=True,
    )
    MOOD.calls, MOOD.at, MOOD.answer = 0, at, answer
    refused = []
    for number in range(4):
        try:
            one.add(str(number), [number] * 6, 4, encoder_tokens=5)
        except PluginError as error:
            refused.append(str(error))
    ended = [answer for answer in one.run().values() if answer.reason == "error"]
    return (
        refused + [answer.error for answer in ended],
        MOOD.calls,
        Counter(answer.reason for answer in one.answers.values()),
    )


@pytest.mark.parametrize("answer", ["fails", None, -1, 10**6])
def test_whenever_a_spec_fails_the_request_it_was_asked_about_ends(engine, answer):
    none, calls, reasons = story(engine, None, answer)
    assert none == []
    assert reasons == {"length": 4}
    seen = 0
    for at in range(1, calls + 1):
        told, _, reasons = story(engine, at, answer)
        assert all("Moody" in sentence for sentence in told)
        assert len(told) <= 1
        assert reasons["length"] == 4 - len(told)
        seen += len(told)
    assert seen > calls // 2


def test_what_an_encoder_leaves_is_counted_once_for_a_request(engine):
    """So that it cannot change between the look at the free pages and their being taken."""
    MOOD.__init__()
    one = engine(runner={"layers": {"cross": Moody(**HEADS, encoder_length=9)}}, max_model_len=20)
    one.add("first", [1] * 5, 4, encoder_tokens=5)
    one.run()
    before = MOOD.calls
    one.add("second", [2] * 5, 4, encoder_tokens=5)
    asked = MOOD.calls - before  # at the door
    one.run()
    assert MOOD.calls - before == asked


def test_more_than_an_encoder_may_leave_is_refused_at_the_door(engine):
    cross = CrossAttentionSpec(**HEADS, encoder_length=9)
    layers = {"full": FullAttentionSpec(**HEADS), "cross": cross}
    one = engine(runner={"layers": layers, "num_pages": 30}, max_model_len=20)
    with pytest.raises(InputError, match="no room for what the encoder leaves") as error:
        one.add("long", [1] * 5, encoder_tokens=13)
    assert error.value.parameter == "encoder_tokens"
    assert error.value.expected == "at most 12 states"
    one.add("fits", [1] * 5, encoder_tokens=12)
    assert one.run()["fits"].reason == "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLength(CrossAttentionSpec):
    """Pages as many as its states need, whatever the class says of the most."""

    def max_pages(self, length, page_tokens, step_tokens):
        return -(-length // page_tokens)


def test_a_request_whose_encoder_leaves_more_than_the_pool_holds_blocks_nobody(engine):
    one = engine(
        runner={"layers": {"cross": ByLength(**HEADS, encoder_length=9)}, "num_pages": 20},
        max_model_len=20,
    )
    with pytest.raises(FrameworkError, match="encoder"):
        one.add("long", [1] * 5, encoder_tokens=1000)
    one.add("short", [1] * 5, encoder_tokens=20)
    assert one.run()["short"].reason == "length"
