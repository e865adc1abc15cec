"""What a token of a stream costs, counted: the same whatever came before and whatever is beside."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from framework.contracts.messages import EngineOutputs
from framework.contracts.sampling import OutputKind, SamplingParams
from framework.contracts.step import Logprobs
from framework.engine.output_processor import OutputProcessor
from framework.testing.byte_tokenizer import ByteTokenizer

FEW, MANY = 4, 4000


def calls_of(work: Callable[[], object]) -> int:
    """Functions that are called, of Python and of C."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def bytes_of(work: Callable[[], object]) -> int:
    """The most that is allocated at a time."""
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


class Stream:
    """One request, of which a step brings a token for one output."""

    def __init__(self, inputs, prompt=FEW, n=1, interval=1, **asked):
        sampling = SamplingParams(
            n=n,
            temperature=1.0,
            max_tokens=None,
            output_kind=OutputKind.DELTA,
            stream_interval=interval,
            **asked,
        )
        request = inputs.process([97] * prompt, sampling)
        self._ids = [one.request_id for one in request.inputs]
        self._logprobs = sampling.logprobs is not None
        self._processor = OutputProcessor(ByteTokenizer())
        self._processor.add(request)

    def steps(self, count, which=0):
        """This many tokens, all "b", of output `which`."""
        logprobs = None
        if self._logprobs:
            logprobs = Logprobs(
                offsets=np.array([0, 1], np.int32),
                ids=np.array([98], np.int32),
                values=np.array([-1.0], np.float32),
                ranks=np.array([1], np.int32),
            )
        told = []
        for _ in range(count):
            step = EngineOutputs(
                step_id=0,
                request_ids=(self._ids[which],),
                token_offsets=np.array([0, 1], np.int32),
                token_ids=np.array([98], np.int32),
                logprobs=logprobs,
                logprob_tokens=np.array([0] if self._logprobs else [], np.int32),
            )
            told += self._processor.process(step).outputs.values()
        return told


@pytest.fixture
def stream(harness):
    inputs = harness(max_model_len=10 * MANY, num_pages=40_000).inputs
    return lambda **asked: Stream(inputs, **asked)


def compared(few: Stream, many: Stream) -> None:
    """A token of either costs as many calls; in memory there is no copy of what many have."""
    for one in (few, many):
        one.steps(2)  # the first token is told with the prompt; caches are filled
    assert calls_of(lambda: few.steps(1)) == calls_of(lambda: many.steps(1)) > 10
    least, most = (bytes_of(lambda one=one: one.steps(1)) for one in (few, many))
    assert most < least + MANY


@pytest.mark.parametrize("asked", [{}, {"logprobs": 0}, {"stop": ["STOP"]}, {"interval": 7}])
def test_a_token_costs_the_same_however_long_the_output_is(stream, asked):
    few, many = stream(**asked), stream(**asked)
    many.steps(7 * (MANY // 7))
    few.steps(7)
    compared(few, many)


def test_a_token_costs_the_same_however_many_outputs_are_beside_it(stream):
    few, many = stream(n=1), stream(n=MANY)
    for index in range(MANY):
        many.steps(1, index)
    compared(few, many)


@pytest.mark.parametrize("asked", [{}, {"prompt_logprobs": 0}])
def test_a_token_costs_the_same_however_long_the_prompt_is(stream, asked):
    compared(stream(prompt=FEW, **asked), stream(prompt=MANY, **asked))


def test_what_was_told_is_kept_no_longer(stream):
    one = stream(logprobs=0)
    told = one.steps(MANY)
    assert "".join(part.outputs[0].text for part in told) == "b" * MANY
    (state,) = one._processor._states.values()
    (completion,) = state.completions.values()
    assert completion.num_tokens == MANY
    assert (completion.pieces, completion.token_ids, completion.logprobs) == ([], [], [])
