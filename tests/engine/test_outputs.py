"""What users get back: kinds of outputs, several outputs, stops, log-probabilities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from framework.contracts.sampling import OutputKind, SamplingParams
from framework.contracts.step import Logprobs
from framework.engine.output_processor import logprob_entries
from framework.engine.outputs import CompletionOutput
from framework.errors import InputError, OverdueError, RequestError
from framework.testing.byte_tokenizer import EOS, PAD, STOP_WORD, ByteTokenizer

KINDS = list(OutputKind)


def params(**changes):
    return SamplingParams(**{"max_tokens": 32, **changes})


def whole(outputs, index=0):
    """A DELTA stream put together again."""
    parts = [c for output in outputs for c in output.outputs if c.index == index]
    logprobs = [part.logprobs for part in parts if part.logprobs is not None]
    return CompletionOutput(
        index=index,
        text="".join(part.text for part in parts),
        token_ids=[i for part in parts for i in part.token_ids],
        cumulative_logprob=parts[-1].cumulative_logprob,
        logprobs=[at for part in logprobs for at in part] if logprobs else None,
        finish_reason=parts[-1].finish_reason,
        stop_reason=parts[-1].stop_reason,
    )


def test_the_three_kinds_tell_the_same(harness):
    """DELTA put together, the last CUMULATIVE and FINAL_ONLY are equal."""
    script = {str(number): list("größe 😀 END more".encode()) for number in range(3)}
    engine = harness(script)
    asked = {"stop": ["END"], "logprobs": 0}
    delta, cumulative, final = (
        engine.stream("x", params(output_kind=kind, **asked))
        for kind in (OutputKind.DELTA, OutputKind.CUMULATIVE, OutputKind.FINAL_ONLY)
    )
    assert len(final) == 1
    assert len(delta) == len(cumulative) > 10
    assert final[0].outputs[0].text == "größe 😀 "
    assert whole(delta) == cumulative[-1].outputs[0] == final[0].outputs[0]
    for before, after in itertools.pairwise(cumulative):
        assert after.outputs[0].text.startswith(before.outputs[0].text)
    engine.check_empty()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"refused": True}, InputError),
        ({"timed_out": True}, OverdueError),
        ({}, RequestError),
    ],
)
def test_an_output_that_failed_tells_what_to_raise_for_it(fields, error):
    failed = CompletionOutput(
        index=0, text="", token_ids=[], finish_reason="error", stop_reason="why", **fields
    )
    assert (type(failed.error), str(failed.error)) == (error, "why")
    for reason in (None, "stop", "length", "abort"):
        other = CompletionOutput(index=0, text="", token_ids=[], finish_reason=reason)
        assert other.error is None


@pytest.mark.parametrize("kind", [OutputKind.DELTA, OutputKind.CUMULATIVE])
@pytest.mark.parametrize(("interval", "parts"), [(1, 8), (3, 4), (4, 3), (7, 2), (8, 2), (99, 2)])
def test_a_stream_in_intervals_tells_the_first_token_at_once(harness, kind, interval, parts):
    """Of "abcdefg" and its end: the first, each `interval` more, and the rest with the end."""
    engine = harness({"0": list(b"abcdefg")})
    asked = params(output_kind=kind, stream_interval=interval, logprobs=0)
    outputs = engine.stream("x", asked)
    assert outputs[0].outputs[0].text == "a"
    assert len(outputs) == parts
    last = whole(outputs) if kind is OutputKind.DELTA else outputs[-1].outputs[0]
    assert (last.text, last.token_ids) == ("abcdefg", [*b"abcdefg", EOS])
    assert len(last.logprobs) == 8
    for before, after in itertools.pairwise(outputs[:-1]):
        so_far = 0 if kind is OutputKind.DELTA else len(before.outputs[0].token_ids)
        assert len(after.outputs[0].token_ids) - so_far == interval


def test_each_output_has_intervals_of_its_own(harness):
    engine = harness({"0.0": list(b"ab"), "0.1": list(b"abcdef")})
    outputs = engine.stream("x", params(n=2, output_kind=OutputKind.DELTA, stream_interval=4))
    parts = [[c.text for o in outputs for c in o.outputs if c.index == i] for i in (0, 1)]
    assert parts == [["a", "b"], ["a", "bcde", "f"]]


def test_streamed_outputs_share_no_list(harness):
    engine = harness({"0": list(b"abcdef")})
    asked = params(output_kind=OutputKind.CUMULATIVE, logprobs=0, prompt_logprobs=0)
    outputs = engine.stream("prompt", asked)
    first, last = outputs[0], outputs[-1]
    expected = list(last.outputs[0].logprobs), list(last.prompt_logprobs)
    first.outputs[0].token_ids.append(7)
    first.outputs[0].logprobs[0].clear()
    first.prompt_token_ids.clear()
    first.prompt_logprobs[1].clear()
    assert last.outputs[0].token_ids == [*b"abcdef", EOS]
    assert (last.outputs[0].logprobs, last.prompt_logprobs) == expected
    assert all(last.outputs[0].logprobs)
    assert last.prompt_token_ids == list(b"prompt")


@pytest.mark.parametrize("kind", KINDS)
def test_several_outputs_keep_apart_and_come_together(harness, kind):
    script = {"0.0": list(b"first"), "0.1": list(b"the second one"), "0.2": list(b"3")}
    engine = harness(script)
    outputs = engine.stream("x", params(n=3, output_kind=kind))
    texts = ["first", "the second one", "3"]
    if kind is OutputKind.DELTA:
        found = [whole(outputs, index).text for index in range(3)]
        # Each output is told to be finished once.
        ends = [c.index for o in outputs for c in o.outputs if c.finished]
        assert sorted(ends) == [0, 1, 2]
    else:
        found = [c.text for c in outputs[-1].outputs]
        assert [c.index for c in outputs[-1].outputs] == [0, 1, 2]
    assert found == texts
    assert [output.finished for output in outputs[:-1]] == [False] * (len(outputs) - 1)
    assert len(outputs) == 1 or kind is not OutputKind.FINAL_ONLY
    engine.check_empty()


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("drafts", [0, 3])
def test_a_stop_string_ends_the_request_in_the_core_too(harness, depth, drafts):
    """Whatever is in flight or came in one step, text and ids end at the same place."""
    text = list(b"one STOP two STOP")
    engine = harness(
        {"0": text},
        depth=2,
        loop_depth=depth,
        max_drafts=drafts,
        drafter=lambda request, tokens, n: text[len(tokens) - request.num_prompt :][:n],
    )
    output = engine.run("x", params(stop=["STOP"], logprobs=0)).outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("one ", "stop", "STOP")
    assert output.token_ids == list(b"one STOP")
    assert len(output.logprobs) == 8
    assert output.cumulative_logprob == pytest.approx(-sum(range(1, 9)) / 100, abs=1e-5)
    engine.check_empty()


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_in_the_step_of_an_end_wins_and_is_cut(harness, include):
    """Field bug 3: the stop text must not leak when EOS comes in the same step."""
    text = [*b"a END", EOS]
    engine = harness(
        {"0": text},
        max_drafts=6,
        drafter=lambda request, tokens, n: text[len(tokens) - request.num_prompt :][:n],
    )
    asked = params(stop="END", include_stop_str_in_output=include)
    output = engine.run("x", asked).outputs[0]
    assert output.text == ("a END" if include else "a ")
    assert (output.finish_reason, output.stop_reason) == ("stop", "END")
    assert output.token_ids == list(b"a END")
    engine.check_empty()


def test_a_stop_string_that_the_last_token_completes_wins_over_length(harness):
    output = harness({"0": list(b"abc")}).run("x", params(stop="c", max_tokens=3)).outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("ab", "stop", "c")


def test_length_flushes_withheld_text_and_half_a_character(harness):
    script = {"0": list(b"ab##"), "1": list("é".encode())}
    engine = harness(script)
    output = engine.run("x", params(stop="###", max_tokens=4)).outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("ab##", "length", None)
    output = engine.run("x", params(max_tokens=1)).outputs[0]
    assert (output.text, output.finish_reason) == ("�", "length")


@pytest.mark.parametrize(
    ("asked", "text", "reason"),
    [
        ({}, "a", None),
        ({"skip_special_tokens": False}, "a<eos>", None),
        ({"ignore_eos": True, "max_tokens": 2}, "a", None),
        ({"ignore_eos": True, "stop_token_ids": [EOS]}, "a", EOS),
    ],
)
def test_end_of_sequence_has_no_reason_and_no_text(harness, asked, text, reason):
    output = harness({"0": [97, EOS]}).run("x", params(**asked)).outputs[0]
    assert (output.text, output.stop_reason) == (text, reason)
    assert output.token_ids == [97, EOS]
    assert output.finish_reason == ("length" if "max_tokens" in asked else "stop")


def test_a_stop_token_is_hidden_only_if_special_or_an_end_of_sequence(harness):
    engine = harness({"0": [97, PAD], "1": [97, STOP_WORD]})
    hidden = engine.run("x", params(stop_token_ids=[PAD])).outputs[0]
    assert (hidden.text, hidden.stop_reason) == ("a", PAD)
    shown = engine.run("x", params(stop_token_ids=[STOP_WORD])).outputs[0]
    assert (shown.text, shown.stop_reason) == ("a[stop]", STOP_WORD)


def test_an_end_that_is_not_special_is_hidden(harness):
    engine = harness({"0": [97, STOP_WORD, 98]}, eos_ids=(EOS, STOP_WORD))
    output = engine.run("x", params()).outputs[0]
    assert (output.text, output.finish_reason, output.stop_reason) == ("a", "stop", None)


@pytest.mark.parametrize(("least", "end"), [(0, 0), (2, 2), (3, 3), (4, 4), (5, 5)])
def test_min_tokens_delays_stop_strings_by_tokens(harness, least, end):
    """Every token is a stop; the first that may act is number min_tokens + 1."""
    script = {"0": list(b"!!!!!")}
    output = harness(script).run("x", params(stop="!", min_tokens=least, max_tokens=5)).outputs[0]
    assert output.text == "!" * end
    assert output.finish_reason == ("length" if least == 5 else "stop")
    assert len(output.token_ids) == min(least + 1, 5)


def test_logprobs_carry_exact_bytes_of_each_token(harness):
    """Field bug 6: bytes concatenate to the text although no token is a whole character."""
    engine = harness({"0": list("é😀".encode())})
    output = engine.run("x", params(logprobs=0)).outputs[0]
    shown = [at[token] for at, token in zip(output.logprobs, output.token_ids, strict=True)]
    assert b"".join(entry.bytes for entry in shown[:-1]).decode() == output.text == "é😀"
    assert [entry.decoded_token for entry in shown[:2]] == ["�", "�"]
    assert [entry.rank for entry in shown] == [1] * 7
    assert shown[0].logprob == pytest.approx(-0.01)


def test_prompt_logprobs_are_kept_by_position_over_chunks(harness):
    engine = harness({"0": list(b"ab")}, max_num_batched_tokens=3)
    outputs = engine.stream("prompt", params(prompt_logprobs=0, output_kind=OutputKind.DELTA))
    entries = outputs[0].prompt_logprobs
    assert entries[0] is None
    found = [entry[token].logprob for entry, token in zip(entries[1:], b"rompt", strict=True)]
    assert found == pytest.approx([-0.01, -0.02, -0.03, -0.04, -0.05])
    assert [output.prompt_logprobs for output in outputs[1:]] == [None] * (len(outputs) - 1)


def test_a_delta_tells_the_prompt_s_log_probabilities_when_all_are_known(harness):
    """The first output loses a page in the step in which the second one speaks."""
    script = {"0.0": list(b"ab"), "0.1": list(b"cd")}
    engine = harness(script, max_num_batched_tokens=6, lose_pages={2: [2]})
    asked = params(n=2, prompt_logprobs=0, output_kind=OutputKind.DELTA)
    outputs = engine.stream("12345678", asked)
    assert [c.index for c in outputs[0].outputs] == [1]
    # The second output hits what the first one computed; that is not told as cached.
    assert {output.num_cached_tokens for output in outputs} == {0}
    told = [output.prompt_logprobs for output in outputs if output.prompt_logprobs is not None]
    assert len(told) == 1
    found = [entry[token].logprob for entry, token in zip(told[0][1:], b"2345678", strict=True)]
    assert found == pytest.approx([-p / 100 for p in range(1, 8)])


def test_a_prompt_can_be_scored_without_an_output(harness):
    engine = harness(max_model_len=8)
    output = engine.run("12345678", params(max_tokens=0, prompt_logprobs=0))
    assert len(output.prompt_logprobs) == 8
    assert (output.outputs[0].token_ids, output.outputs[0].finish_reason) == ([], "length")


def test_cached_tokens_are_told(harness):
    engine = harness({"0": list(b"a"), "1": list(b"a")})
    assert engine.run("0123456789", params()).num_cached_tokens == 0
    assert engine.run("0123456789", params()).num_cached_tokens == 8


def test_metrics_are_in_order(harness):
    outputs = harness({"0": list(b"abc")}, delay=0.001).stream("x", params())
    metrics = outputs[-1].metrics
    assert metrics.arrival_time < metrics.first_token_time < metrics.finished_time
    assert {output.metrics.first_token_time for output in outputs} == {metrics.first_token_time}


def test_log_probabilities_go_to_the_requests_that_asked(harness):
    """In one step some rows have log-probabilities and others have none."""
    engine = harness({"0": list(b"ab"), "1": list(b"cd"), "2": list(b"ef")})
    asked = [params(logprobs=wanted) for wanted in (None, 0, 0)]
    engine.client.add([engine.inputs.process("xy", one) for one in asked])
    while engine.core.has_work():
        engine.client.step()
    for number, text in ((1, b"cd"), (2, b"ef")):
        outputs = []
        while not outputs or not outputs[-1].finished:
            outputs.append(engine.client.take(str(number)))
        output = outputs[-1].outputs[0]
        assert [list(at) for at in output.logprobs] == [[token] for token in [*text, EOS]]
        found = [at[token].logprob for at, token in zip(output.logprobs, [*text, EOS], strict=True)]
        assert found == pytest.approx([-0.02, -0.03, -0.04])


def test_an_entry_has_the_token_itself_first_with_its_own_rank_then_the_best():
    """Entry 0 is the token; where it is among the best too, as with a tie, it counts once."""
    logprobs = Logprobs(
        offsets=np.array([0, 3, 6], np.int32),
        ids=np.array([67, 65, 66, 66, 65, 66], np.int32),
        values=np.array([-3, -1, -2, -1, -1, -1], np.float32),
        ranks=np.array([7, 1], np.int32),
    )
    first, second = logprob_entries(logprobs, ByteTokenizer())
    assert [(i, e.rank, e.logprob) for i, e in first.items()] == [
        (67, 7, -3.0),
        (65, 1, -1.0),
        (66, 2, -2.0),
    ]
    assert [(i, e.rank) for i, e in second.items()] == [(66, 1), (65, 1)]
    assert logprob_entries(logprobs, ByteTokenizer(), 1) == [second]


def test_without_detokenize_there_are_ids_and_no_text(harness):
    output = harness({"0": list(b"ab")}).run("x", params(detokenize=False)).outputs[0]
    assert (output.text, output.token_ids) == ("", [*b"ab", EOS])


def test_a_failing_row_ends_with_its_sentence_and_its_neighbour_goes_on(harness):
    engine = harness({"0": list(b"a"), "1": list(b"b")}, fail_rows={(1, 0): "a bad row"})
    asked = params(output_kind=OutputKind.FINAL_ONLY)
    requests = [engine.inputs.process(text, asked) for text in "xy"]
    engine.client.add(requests)
    first, second = (engine.client.wait(str(number)) for number in range(2))
    assert (first.outputs[0].finish_reason, first.outputs[0].stop_reason) == ("error", "a bad row")
    assert (second.outputs[0].text, second.outputs[0].finish_reason) == ("b", "stop")


def test_the_text_of_an_output_continues_its_prompt(harness):
    """A tokenizer that strips a leading space does so only where no text came before."""
    engine = harness({"0": list(b" a"), "1": list(b" a")}, ByteTokenizer(strips=True))
    assert engine.run("x", params()).outputs[0].text == " a"
    assert engine.run([PAD], params()).outputs[0].text == "a"
