"""What is found does not depend on where the text was cut."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from framework.contracts.tool_parser import CallArguments, CallBegins, Text
from framework.testing.byte_tokenizer import ByteTokenizer
from framework_parsers.hermes import Hermes
from framework_parsers.json_calls import Llama3Json, Mistral
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
    "llama": (Llama3Json, CALL, "", [WEATHER]),
    "llama, tag": (Llama3Json, f"<|python_tag|>{CALL}", "", [WEATHER]),
    "llama, two": (Llama3Json, f"{CALL}; {CLOCK}", "", [WEATHER, TIME]),
    "llama, text": (Llama3Json, f"It is {CALL}", f"It is {CALL}", []),
    "llama, other JSON": (Llama3Json, '{"a": 1}', '{"a": 1}', []),
    "llama, cut off": (Llama3Json, '{"name": "clock', '{"name": "clock', []),
    "mistral": (Mistral, f"[TOOL_CALLS] [{CALL}, {CLOCK}]", "", [WEATHER, TIME]),
    "mistral, text": (Mistral, f"Well [TOOL_CALLS][{CLOCK}]", "Well ", [TIME]),
    "mistral, no array": (Mistral, "[TOOL_CALLS] {}", "[TOOL_CALLS] {}", []),
    "mistral, one unknown": (
        Mistral,
        f'[TOOL_CALLS] [{CLOCK}, {{"name": "rm"}}]',
        f'[TOOL_CALLS] [{CLOCK}, {{"name": "rm"}}]',
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


def test_text_that_can_be_no_call_is_not_held_back():
    stream = Hermes().stream(TOOLS)
    assert stream.push("Hello <to") == [Text("Hello ")]
    assert stream.push("day") == [Text("<today")]


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
    ],
)
def test_reasoning_and_answer_are_told_apart(parser, prompt, text, reasoning, content):
    for pieces in cuts(text, text):
        stream = parser().stream(prompt)
        splits = [*(stream.push(piece) for piece in pieces), stream.finish()]
        assert "".join(split.reasoning for split in splits) == reasoning
        assert "".join(split.content for split in splits) == content


def test_the_end_of_reasoning_is_seen_in_the_ids():
    tokenizer = ByteTokenizer()
    ended = Qwen3().reasoning_ended
    assert not ended(tokenizer.encode("<think>hm"), tokenizer)
    assert ended(tokenizer.encode("<think>hm</think>"), tokenizer)
    assert not ended(tokenizer.encode("nothing"), tokenizer)
