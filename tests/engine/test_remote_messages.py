"""What goes over the wire comes out as it went in."""

from __future__ import annotations

import inspect

import msgspec
import numpy as np
import pytest

from framework import errors
from framework.contracts.messages import EngineInput, EngineOutputs, EngineStats, Finished
from framework.contracts.sampling import SamplingParams
from framework.engine.remote.messages import (
    Add,
    Died,
    Outputs,
    Reply,
    WireError,
    answer_coder,
    request_coder,
)

OURS = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.FrameworkError)
]


@pytest.mark.parametrize("kind", OURS)
def test_every_error_of_ours_arrives_as_itself(kind):
    error = kind("it broke", expected=3, found=[1], mend="do this")
    for name in ("parameter", "plugin", "retry_after"):
        if hasattr(error, name):
            setattr(error, name, 2.5 if name == "retry_after" else "x")
    encoder, decoder = answer_coder()
    arrived = decoder.decode(encoder.encode(Reply(number=1, error=WireError.of(error))))
    again = arrived.error.error()
    assert type(again) is kind
    assert str(again) == str(error)
    assert getattr(again, "parameter", None) == getattr(error, "parameter", None)
    assert getattr(again, "retry_after", None) == getattr(error, "retry_after", None)


def test_another_error_arrives_under_its_name():
    again = WireError.of(ZeroDivisionError("by zero")).error()
    assert type(again) is errors.FrameworkError
    assert again.message == "ZeroDivisionError: by zero"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("half \ud800"),
        errors.InputError("half \ud800"),
        errors.PluginError("half", plugin="\ud800", found=["\ud800"], mend="half \ud800"),
    ],
)
def test_an_error_arrives_whatever_its_text_holds(error):
    """Else the core would go without a word of why."""
    encoder, decoder = answer_coder()
    again = decoder.decode(encoder.encode(Died(error=WireError.of(error)))).error.error()
    assert "half" in str(again)
    assert "\\ud800" in f"{again} {vars(again)}"


def test_a_request_and_an_output_arrive_whole():
    entry = EngineInput(
        request_id="a",
        tokens=np.array([1, 2, 3], np.int32),
        sampling=SamplingParams(logit_bias={5: 1.5}, stop=["x"], extra_args={"p": {"q": [1]}}),
        seed=2**64 - 1,
        max_total=9,
        extras={"p": b"\x00\xff"},
    )
    encoder, decoder = request_coder()
    arrived = decoder.decode(encoder.encode(Add(number=7, inputs=(entry,)))).inputs[0]
    assert arrived.tokens.tolist() == [1, 2, 3]
    assert arrived.tokens.dtype == np.int32
    assert (arrived.sampling, arrived.seed, arrived.extras) == (
        entry.sampling,
        entry.seed,
        entry.extras,
    )
    outputs = EngineOutputs(
        step_id=4,
        request_ids=("a",),
        token_offsets=np.array([0, 1], np.int32),
        token_ids=np.array([42], np.int32),
        finished=(Finished(row=0, reason="stop", stop=42),),
        stats=EngineStats(running=1, waiting_reasons={"grammar": 2}),
    )
    encoder, decoder = answer_coder()
    back = decoder.decode(encoder.encode(Outputs(outputs=outputs))).outputs
    assert back.token_ids.tolist() == [42]
    assert (back.finished, back.stats) == (outputs.finished, outputs.stats)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x80", msgspec.msgpack.encode({"type": "Exec", "code": "1"})]
)
def test_what_is_no_message_is_refused(data):
    _, decoder = request_coder()
    with pytest.raises(msgspec.DecodeError):
        decoder.decode(data)
