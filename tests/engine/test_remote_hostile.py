"""What the core cannot read, or cannot answer, ends the call that it belongs to and no other."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
import numpy as np
import pytest

from framework.contracts.messages import EngineInput
from framework.contracts.participant import Refuse, SchedulerParticipant, Wait
from framework.contracts.sampling import SamplingParams
from framework.engine.extras import read_extras
from framework.engine.remote.messages import (
    Add,
    Call,
    Died,
    Outputs,
    Reply,
    Stop,
    answer_coder,
    read_request,
    request_coder,
)
from framework.engine.remote.server import METHODS, CoreServer
from framework.errors import PluginError
from framework.testing.harness import Harness

HALF = "\ud800"


class Wire:
    """The core's end of a link: messages as bytes, both ways."""

    def __init__(self, sent):
        encoder, self.decoder = request_coder()
        self.sent = [data if isinstance(data, bytes) else encoder.encode(data) for data in sent]
        self.encoder, self.reader = answer_coder()
        self.answers = []

    def receive(self, timeout):
        data, self.sent = self.sent, []
        return [read_request(self.decoder, one) for one in data]

    def send(self, answer):
        self.answers.append(self.reader.decode(self.encoder.encode(answer)))


class Handed(Wire):
    """A link inside one process: messages are handed over as they are."""

    def __init__(self, sent):
        super().__init__(())
        self.sent = sent

    def receive(self, timeout):
        sent, self.sent = self.sent, []
        return sent


class Pulse:
    def begin(self):
        pass

    def end(self):
        pass


def serve(*sent, core=None, link=Wire, **harness):
    """The answers: replies by number, and the reason for which each request ended."""
    wire = link([*sent, Add(number=77, inputs=(entry("good"),)), Stop(drain=True)])
    CoreServer(core or Harness(**harness).core, wire, Pulse()).run()
    assert not [answer for answer in wire.answers if isinstance(answer, Died)]
    replies = {answer.number: answer for answer in wire.answers if isinstance(answer, Reply)}
    ends = {}
    for answer in wire.answers:
        if isinstance(answer, Outputs):
            for end in answer.outputs.finished:
                ends[answer.outputs.request_ids[end.row]] = end.error or end.reason
    assert ends["good"] == "length"
    return replies, ends


def entry(name="bad", **more):
    tokens = np.array([1, 2], np.int32)
    given = {"tokens": tokens, "sampling": SamplingParams(max_tokens=2), "seed": 0, "max_total": 4}
    return EngineInput(**{"request_id": name, **given, **more})


def spoilt(**fields):
    """An Add with fields that no EngineInput has so; None: left out."""
    message = msgspec.to_builtins(
        Add(number=1, inputs=(entry(),)),
        enc_hook=lambda a: [a.dtype.str, list(a.shape), a.tobytes()],
        builtin_types=(bytes,),
    )
    own = message["inputs"][0] | fields
    message["inputs"] = [{name: value for name, value in own.items() if value is not None}]
    return msgspec.msgpack.encode(message)


FIELDS = [
    {"tokens": None},
    {"tokens": "xyz"},
    {"tokens": ["<i4", [3], b"1234"]},
    {"tokens": ["|O", [1], b"12345678"]},
    {"tokens": ["import os", [1], b"1234"]},
    {"tokens": ["<i4", [2**40], b"1234"]},
    {"tokens": ["<f8", [1], b"12345678"]},
    {"tokens": ["<i4", [0], b""]},
    {"tokens": ["<i4", [], b"1234"]},
    {"request_id": 7},
    {"sampling": {"temperature": float("nan")}},
    {"seed": -1},
    {"priority": 2**64 - 1},
    {"max_total": 2**63},
    {"deadline": "soon"},
    {"extras": {"grammar": "text"}},
    {"payloads": {"image": 1}},
    {"trace_headers": {"traceparent": 1}},
    {"stop_ids": [2**63]},
]


@pytest.mark.parametrize("fields", FIELDS)
def test_a_request_of_other_types_is_answered_and_others_go_on(fields):
    replies, ends = serve(spoilt(**fields))
    assert replies[1].error is not None
    assert replies[77].error is None
    assert list(ends) == ["good"]


UNREAD = {"client_id", "trace_headers"}


@pytest.mark.parametrize("field", sorted({*EngineInput.__struct_fields__} - UNREAD))
def test_inside_one_process_too_a_value_of_another_type_ends_its_call_alone(field):
    """Nothing is decoded there, so that nothing was looked at before the core does."""
    bad = Add(number=1, inputs=(entry("first"), entry(**{field: object()})))
    replies, ends = serve(bad, link=Handed)
    assert replies[1].error is not None
    assert ends == {"first": "abort", "good": "length"}


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xc0", msgspec.msgpack.encode({"type": "Exec"})])
def test_what_is_no_message_is_logged_and_the_engine_goes_on(data, caplog):
    serve(data)
    assert "cannot read what it was asked" in caplog.text


CALLS = [
    ("sleep", {"depth": 1}),
    ("sleep", {"level": [1]}),
    ("pin_prefix", {"key": 1}),
    ("pin_prefix", {"tokens": {"a": 1}}),
    ("control", {}),
    ("control", {"name": [1], "op": "list", "arguments": {}}),
    ("stats", {"core": 1}),
    ("nothing", {}),
]


@pytest.mark.parametrize(("method", "arguments"), CALLS)
def test_a_call_with_other_arguments_is_answered_and_requests_go_on(method, arguments):
    replies, _ = serve(Call(number=1, method=method, arguments=arguments))
    assert replies[1].error is not None


@pytest.mark.parametrize("key", [[1], True, 1.0, None])
def test_what_is_no_key_unpins_nothing(key):
    one = Harness(max_model_len=40)
    one.add("a", [1] * 9, 2)
    one.run()
    assert one.core.pin_prefix([1] * 8)[1] == 8
    replies, _ = serve(Call(number=1, method="unpin_prefix", arguments={"key": key}), core=one.core)
    assert replies[1].value is False


class Says(SchedulerParticipant):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def admit(self, request):
        return self.answer

    def control(self, op, arguments):
        return {"value": self.answer}


@pytest.mark.parametrize("answer", [object(), HALF, 10**30])
def test_an_answer_that_cannot_be_sent_is_told_to_who_asked(answer):
    asked = {"name": "says", "op": "list", "arguments": {}}
    call = Call(number=1, method="control", arguments=asked)
    replies, _ = serve(call, participants={"says": Says(answer)})
    assert "cannot be sent" in replies[1].error.message


def test_texts_of_plugins_reach_clients_whatever_they_hold():
    """Half a surrogate pair, of which a client's own text may be the source, has no bytes."""
    refuses = {"participants": {"says": Says(Refuse(f"no {HALF}"))}}
    _, ends = serve(Add(number=1, inputs=(entry(extras={"says": b""}),)), **refuses)
    assert ends["bad"] == "no \\ud800"
    waits, answers = Says(None), iter([Wait(HALF, lambda: True), Refuse("late")])
    waits.admit = lambda request: next(answers)
    _, ends = serve(
        Add(number=1, inputs=(entry(extras={"says": b""}),)), participants={"says": waits}
    )
    assert ends["bad"] == "late"
    _, ends = serve(Add(number=1, inputs=(entry(),)), runner={"fail_rows": {(1, 0): HALF}})
    assert ends["bad"] == "\\ud800"


def test_events_of_the_cache_arrive_and_no_token_of_them_is_looked_at():
    """There may be tens of thousands of them, and no step is made meanwhile."""
    one = Harness(enable_kv_events=True)
    one.add("a", [1] * 9, 2)
    one.run()
    told = one.core.take_kv_events()
    one.core.take_kv_events = lambda: told
    assert METHODS["take_kv_events"](one.core)[-1]["tokens"] is told[-1].tokens
    replies, _ = serve(Call(number=1, method="take_kv_events"), core=one.core)
    assert replies[1].value == [asdict(event) | {"tokens": [1] * 4} for event in told]


def test_what_a_half_in_the_front_end_reads_is_bytes_or_its_fault():
    class Half:
        serves = frozenset()
        plugin_id = "scheduler_participant:half@mine"

        def read(self, sampling):
            return "text"

    with pytest.raises(PluginError, match="scheduler_participant:half@mine answered read"):
        read_extras({"half": Half()}, SamplingParams())
