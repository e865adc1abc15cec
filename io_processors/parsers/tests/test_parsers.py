"""What is found does not depend on where the text was cut."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framework.contracts.tool_parser import CallArguments, CallBegins, Text
from framework.testing.byte_tokenizer import ByteTokenizer
from framework_parsers.hermes import Hermes
from framework_parsers.llama import Llama3Json
from framework_parsers.mistral import Mistral
from framework_parsers.thinking import DeepSeekR1, Qwen3

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]
CALL = '{"name": "weather", "arguments": {"city": "Paris \\"}{", "days": [1, {"a": 2}]}}'
CLOCK = '{"name": "clock", "parameters": {}}'
ARGUMENTS = {"city": 'Paris "}{', "days": [1, {"a": 2}]}
WEATHER, TIME = ("weather", ARGUMENTS), ("clock", {})

CASES = {
    "plain": (Hermes, "no call at all <tool", "no call at all <tool", []),
    "one": (Hermes, f"<tool_call>\n{CALL}\n</tool_call>", "", [WEATHER]),
    "text before": (Hermes, f"I look. <tool_call>{CALL}</tool_call>", "I look. ", [WEATHER]),
    "two": (
        Hermes,
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{CLOCK}</tool_call>\n",
        "",
        [WEATHER, TIME],
    ),
    "text behind": (Hermes, f"<tool_call>{CLOCK}</tool_call> done", " done", [TIME]),
    "no end": (Hermes, f"<tool_call>{CALL}", "", [WEATHER]),
    "cut off": (Hermes, '<tool_call>{"name": "wea', '<tool_call>{"name": "wea', []),
    "no JSON": (Hermes, "<tool_call>oh</tool_call>", "<tool_call>oh</tool_call>", []),
    "unknown tool": (
        Hermes,
        '<tool_call>{"name": "rm"}</tool_call>',
        '<tool_call>{"name": "rm"}</tool_call>',
        [],
    ),
    "arguments as text": (
        Hermes,
        '<tool_call>{"name": "clock", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("clock", {"a": 1})],
    ),
    "mark in a string": (
        Hermes,
        '<tool_call>{"name": "clock", "arguments": {"a": "</tool_call><tool_call>"}}</tool_call>.',
        ".",
        [("clock", {"a": "</tool_call><tool_call>"})],
    ),
    "no end between two": (Hermes, f"<tool_call>{CALL}\n<tool_call>{CLOCK}", "", [WEATHER, TIME]),
    "two between marks": (Hermes, f"<tool_call>{CALL}{CLOCK}</tool_call>", "", [WEATHER, TIME]),
    "name last": (
        Hermes,
        '<tool_call>{"arguments": {"a": "\\u00e9"}, "id": 1, "name": "clock"}</tool_call>',
        "",
        [("clock", {"a": "\u00e9"})],
    ),
    "more members": (
        Hermes,
        '<tool_call>{"type": "function", "name": "clock", "arguments": {}, "id": {}}</tool_call>',
        "",
        [TIME],
    ),
    "escapes in key and name": (
        Hermes,
        '<tool_call>{"n\\u0061me": "cl\\u006fck", "parameters": {"a": "\\ud83d\\ude00"}}'
        "</tool_call>",
        "",
        [("clock", {"a": "\U0001f600"})],
    ),
    "no arguments": (Hermes, '<tool_call>{"name": "clock"}</tool_call>', "", [TIME]),
    "null": (Hermes, '<tool_call>{"name": "clock", "arguments": null}</tool_call>', "", [TIME]),
    "name is a list": (
        Hermes,
        '<tool_call>{"name": ["clock"]}</tool_call>',
        '<tool_call>{"name": ["clock"]}</tool_call>',
        [],
    ),
    "arguments are a list": (
        Hermes,
        '<tool_call>{"name": "clock", "arguments": []}</tool_call>',
        '<tool_call>{"name": "clock", "arguments": []}</tool_call>',
        [],
    ),
    "name and arguments deeper": (
        Hermes,
        '<tool_call>{"x": {"name": "clock", "arguments": {}}}</tool_call>',
        '<tool_call>{"x": {"name": "clock", "arguments": {}}}</tool_call>',
        [],
    ),
    "half an end mark": (Hermes, f"<tool_call>{CLOCK}</tool_c", "</tool_c", [TIME]),
    "layout": (
        Hermes,
        f" \n<tool_call>{CLOCK}</tool_call>\n\n<tool_call>",
        "\n\n<tool_call>",
        [TIME],
    ),
    "space alone": (Hermes, " \n ", " \n ", []),
    "prose between": (
        Hermes,
        f"a <tool_call>{CLOCK}</tool_call> b <tool_call>{CLOCK}</tool_call> c",
        "a  b  c",
        [TIME, TIME],
    ),
    "llama": (Llama3Json, CALL, "", [WEATHER]),
    "llama, tag": (Llama3Json, f"<|python_tag|>{CALL}", "", [WEATHER]),
    "llama, two": (Llama3Json, f"{CALL}; {CLOCK}", "", [WEATHER, TIME]),
    "llama, text": (Llama3Json, f"It is {CALL}", f"It is {CALL}", []),
    "llama, other JSON": (Llama3Json, '{"a": 1}', '{"a": 1}', []),
    "llama, tag behind text": (Llama3Json, f"So <|python_tag|>{CALL}", "So ", [WEATHER]),
    "llama, code": (Llama3Json, "<|python_tag|>f(1)", "<|python_tag|>f(1)", []),
    "llama, special token": (Llama3Json, f"{CALL}<|eom_id|>", "<|eom_id|>", [WEATHER]),
    "llama, cut off": (Llama3Json, '{"name": "clock', '{"name": "clock', []),
    "mistral": (Mistral, f"[TOOL_CALLS] [{CALL}, {CLOCK}]", "", [WEATHER, TIME]),
    "mistral, text": (Mistral, f"Well [TOOL_CALLS][{CLOCK}]", "Well ", [TIME]),
    "mistral, no call": (Mistral, "[TOOL_CALLS] {}", "[TOOL_CALLS] {}", []),
    "mistral, empty": (Mistral, "[TOOL_CALLS][]", "[TOOL_CALLS][]", []),
    "mistral, no array": (Mistral, f"[TOOL_CALLS]{CLOCK}", "", [TIME]),
    "mistral, one unknown": (
        Mistral,
        f'[TOOL_CALLS] [{CLOCK}, {{"name": "rm"}}] x',
        ', {"name": "rm"}] x',
        [TIME],
    ),
    "mistral, array not closed": (Mistral, f"[TOOL_CALLS][{CLOCK},{CALL}", "", [TIME, WEATHER]),
    "mistral, newer": (
        Mistral,
        'Well [TOOL_CALLS]weather[ARGS]{"a": "}"}[TOOL_CALLS]clock[CALL_ID]a1b2c3d4e[ARGS]{} bye',
        "Well  bye",
        [("weather", {"a": "}"}), TIME],
    ),
    "mistral, newer, unknown": (Mistral, "[TOOL_CALLS]rm[ARGS]{}", "[TOOL_CALLS]rm[ARGS]{}", []),
    "mistral, newer, cut off": (Mistral, "[TOOL_CALLS]clock[AR", "[TOOL_CALLS]clock[AR", []),
    "mistral, mark twice": (Mistral, "[TOOL_CALLS]o[TOOL_CALLS]clock{}", "[TOOL_CALLS]o", [TIME]),
    "mistral, long name": (
        Mistral,
        f"[TOOL_CALLS]{'x' * 500}{{}}",
        f"[TOOL_CALLS]{'x' * 500}{{}}",
        [],
    ),
}


def cuts(text, seed):
    """The whole, every character alone, and cut at random."""
    yield [text]
    yield list(text)
    rng = random.Random(seed)
    for _ in range(20):
        places = sorted({0, len(text), *(rng.randrange(len(text) + 1) for _ in range(4))})
        yield [text[a:b] for a, b in itertools.pairwise(places)]


def gathered(stream, pieces):
    events = [event for piece in pieces for event in stream.push(piece)] + list(stream.finish())
    text = "".join(event.text for event in events if isinstance(event, Text))
    names = {event.index: event.name for event in events if isinstance(event, CallBegins)}
    arguments = dict.fromkeys(names, "")
    for event in events:
        if isinstance(event, CallArguments):
            arguments[event.index] += event.text
    assert list(names) == list(range(len(names)))
    return text, [(names[index], json.loads(arguments[index])) for index in names]


@pytest.mark.parametrize("case", CASES)
def test_calls_and_text_are_told_apart_wherever_the_text_is_cut(case):
    parser, text, left, calls = CASES[case]
    for pieces in cuts(text, case):
        assert gathered(parser().stream(TOOLS), pieces) == (left, calls), pieces


PARSERS = (Hermes, Llama3Json, Mistral)
PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
        *("[", "]", "{", "}", '"', "\\", ",", ":", ";", " ", "\n", "<", "name", "clock", "x"),
        *('{"name": "clock", "arguments": ', '"parameters"', "null", "\\ud83d", "\U0001f600"),
        *(CALL, CLOCK, '"name": "rm", ', '"arguments": "{}"', "weather[ARGS]{"),
    ]
)
TEXTS = st.lists(PARTS, max_size=14).map("".join)


def raw(stream, pieces):
    """Text, and name and argument text of each call; the arguments need not be JSON."""
    events = [event for piece in pieces for event in stream.push(piece)] + list(stream.finish())
    text, calls = "", []
    for event in events:
        match event:
            case Text():
                text += event.text
            case CallBegins():
                assert event.index == len(calls)
                calls.append([event.name, ""])
            case CallArguments():
                assert event.index == len(calls) - 1
                calls[-1][1] += event.text
    text.encode()
    return text, calls


def cut(text, places):
    edges = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges)]


PLACES = st.lists(st.integers(0, 1000), max_size=8)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=TEXTS, places=PLACES)
def test_any_text_is_read_alike_wherever_it_is_cut_and_without_calls_it_is_the_text(text, places):
    for parser in PARSERS:
        whole = raw(parser().stream(TOOLS), [text])
        assert raw(parser().stream(TOOLS), list(text)) == whole
        assert raw(parser().stream(TOOLS), cut(text, places)) == whole
        if not whole[1]:
            assert whole[0] == text


STRINGS = st.text('ab{}[]"\\<:, \n\u00e9\U0001f600', max_size=8) | st.sampled_from(
    ["</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "name"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=6,
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["weather", "clock"]), st.dictionaries(STRINGS, VALUES, max_size=3)),
    min_size=1,
    max_size=4,
)
PLAIN = st.text("a> \n};]\u00e9\U0001f600", max_size=8).map(lambda text: f"a{text}")


def as_object(call):
    return json.dumps({"name": call[0], "arguments": call[1]})


def as_objects(calls):
    return [as_object(call) for call in calls]


WAYS = {
    "hermes": (Hermes, lambda c: "".join(f"<tool_call>{o}</tool_call>" for o in as_objects(c))),
    "llama3_json": (Llama3Json, lambda c: f"<|python_tag|>{'; '.join(as_objects(c))}"),
    "mistral": (Mistral, lambda c: f"[TOOL_CALLS][{', '.join(as_objects(c))}]"),
    "mistral, newer": (
        Mistral,
        lambda c: "".join(f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a)}" for n, a in c),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(calls=CALLS, before=PLAIN, after=PLAIN, places=PLACES)
def test_all_that_a_model_calls_and_says_is_found(way, calls, before, after, places):
    parser, write = WAYS[way]
    text = before + write(calls) + after
    assert gathered(parser().stream(TOOLS), cut(text, places)) == (before + after, calls)


@pytest.mark.parametrize("way", WAYS)
def test_arguments_are_told_while_they_come(way):
    parser, write = WAYS[way]
    text = write([("clock", {"a": "x" * 50})])
    stream = parser().stream(TOOLS)
    events = [event for character in text for event in stream.push(character)]
    assert isinstance(events[0], CallBegins)
    assert sum(isinstance(event, CallArguments) for event in events) > 50


@pytest.mark.parametrize(
    ("parser", "text", "arguments"),
    [
        (Hermes, '<tool_call>{"name": "clock", "arguments": {"a": 1</tool_call> x', '{"a": 1'),
        (Hermes, '<tool_call>{"name": "clock", "arguments": {"a": 1}</tool_call> x', '{"a": 1}'),
        (Llama3Json, '{"name": "clock", "parameters": {"a": tru<|eot|> x', '{"a": tru'),
        (Mistral, "[TOOL_CALLS]clock[ARGS]{'a'", "{'a'"),
    ],
)
def test_what_was_told_of_broken_arguments_is_as_the_model_wrote_it(parser, text, arguments):
    for pieces in cuts(text, text):
        rest, calls = raw(parser().stream(TOOLS), pieces)
        assert calls == [["clock", arguments]]
        assert rest == (("<|eot|>" if "<|" in text else "") + " x" if "x" in text else "")


def test_text_that_can_be_no_call_is_not_held_back():
    stream = Hermes().stream(TOOLS)
    assert stream.push("Hello <to") == [Text("Hello ")]
    assert stream.push("day") == [Text("<today")]


TURN = "<|im_start|>user\nwhat is <think>?<|im_end|>\n<|im_start|>assistant\n"
CLOSED = TURN.replace("<think>", "</think>")


@pytest.mark.parametrize(
    ("parser", "prompt", "text", "reasoning", "content"),
    [
        (Qwen3, "", "<think>\nhm</think>\nyes", "\nhm", "\nyes"),
        (Qwen3, "", "yes <think>", "", "yes <think>"),
        (Qwen3, "...<think>\n", "hm</think>yes", "hm", "yes"),
        (Qwen3, "", "<think>never ends </thi", "never ends </thi", ""),
        (Qwen3, "<think>\n\n</think>\n\n", "yes", "", "yes"),
        (DeepSeekR1, "", "hm</think>yes", "hm", "yes"),
        (DeepSeekR1, "", "<think>hm</think>yes</think>", "hm", "yes</think>"),
        (DeepSeekR1, "<think>\n\n</think>", "yes", "", "yes"),
        (Qwen3, "", "<thin", "", "<thin"),
        (Qwen3, "", " \n<think>hm</think>", "hm", ""),
        (Qwen3, "", " \n yes", "", " \n yes"),
        (Qwen3, "", " \n ", "", " \n "),
        (Qwen3, "<think>", "<think>hm</think>yes", "hm", "yes"),
        (Qwen3, "<think>I was", " here</think>yes", " here", "yes"),
        (Qwen3, "<think>x</think>The answer", " is <think>", "", " is <think>"),
        (Qwen3, "<think>\n\n</think>\n\n", "<think>x</think>", "", "<think>x</think>"),
        (Qwen3, TURN, "yes</think>", "", "yes</think>"),
        (DeepSeekR1, CLOSED, "hm</think>yes", "hm", "yes"),
        (DeepSeekR1, "<\uff5cAssistant\uff5c><think>\n", "hm</think>yes", "hm", "yes"),
        (DeepSeekR1, "", "\n hm </think", "\n hm </think", ""),
    ],
)
def test_reasoning_and_answer_are_told_apart(parser, prompt, text, reasoning, content):
    for pieces in cuts(text, text):
        stream = parser().stream(prompt)
        splits = [*(stream.push(piece) for piece in pieces), stream.finish()]
        assert "".join(split.reasoning for split in splits) == reasoning
        assert "".join(split.content for split in splits) == content


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    parts=st.lists(
        st.sampled_from(["<think>", "</think>", " ", "a", "<", "</th", "\n"]), max_size=9
    ),
    prompt=st.sampled_from(["", "<think>", "</think>", TURN]),
    places=PLACES,
)
def test_any_reasoning_is_read_alike_wherever_it_is_cut(parts, prompt, places):
    text = "".join(parts)
    for parser in (Qwen3, DeepSeekR1):
        found = []
        for pieces in ([text], list(text), cut(text, places)):
            stream = parser().stream(prompt)
            splits = [*(stream.push(piece) for piece in pieces), stream.finish()]
            joined = [
                "".join(getattr(s, name) for s in splits) for name in ("reasoning", "content")
            ]
            found.append((*joined, stream.ended))
        assert found[0] == found[1] == found[2]
        reasoning, content, _ = found[0]
        bare = "".join((reasoning, content)).replace("<think>", "").replace("</think>", "")
        assert bare.split() == text.replace("<think>", "").replace("</think>", "").split()


@pytest.mark.parametrize(
    ("prompt", "output", "ended"),
    [
        ("", "<think>hm", False),
        ("", "<think>hm</think>", True),
        ("", "<think>hm</thi", False),
        ("", "", False),
        ("", "<thi", False),
        ("", "nothing", True),
        ("<think>", "hm", False),
        ("<think></think>", "", True),
        (TURN, "", False),
        (CLOSED, "", False),
    ],
)
def test_the_end_of_reasoning_is_seen_in_the_ids(prompt, output, ended):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(prompt), tokenizer.encode(output)
    assert Qwen3().reasoning_ended(*ids, tokenizer) is ended
