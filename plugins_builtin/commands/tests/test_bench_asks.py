"""What benchmarks ask: data sets, lengths, bodies."""

from __future__ import annotations

import json

import numpy as np
import pytest

from framework.errors import ConfigError
from framework_commands.api.address import Address
from framework_commands.bench.asks import Ask, Custom, PrefixRepetition, Random, ShareGPT, Words
from framework_commands.bench.target import Target

TEXT = Words(())
IDS = Words(range(10, 50))


def test_random_prompts_have_their_lengths_and_begin_alike():
    rng = np.random.default_rng(3)
    asks = Random(input=20, output=8, spread=0.5, prefix=4).draw(IDS, rng, 50)
    lengths = [len(ask.prompt) - 4 for ask in asks]
    assert min(lengths) >= 10
    assert max(lengths) <= 30
    assert len(set(lengths)) > 5
    assert len({tuple(ask.prompt[:4]) for ask in asks}) == 1
    assert len({tuple(ask.prompt) for ask in asks}) == 50
    again = Random(input=20, output=8, spread=0.5, prefix=4).draw(IDS, np.random.default_rng(3), 50)
    assert asks == again
    words = Random(input=20, output=8, spread=0.0, prefix=0).draw(TEXT, rng, 1)
    assert len(words[0].prompt.split()) == 20


def test_prefixes_are_repeated_evenly():
    made = PrefixRepetition(prefixes=3, prefix=6, suffix=2, output=5)
    asks = made.draw(IDS, np.random.default_rng(0), 9)
    heads = [tuple(ask.prompt[:6]) for ask in asks]
    assert sorted(heads.count(head) for head in set(heads)) == [3, 3, 3]
    assert {len(ask.prompt) for ask in asks} == {8}


def test_conversations_of_a_file_are_asked_with_the_length_of_their_answer(tmp_path):
    file = tmp_path / "s.json"
    turns = [("a b c d e", "f g h i"), ("too short", "f g h i"), ("a b c d", "g " * 99)]
    rows = [{"conversations": [{"from": "x", "value": t} for t in pair]} for pair in turns]
    file.write_text(json.dumps([*rows, {"conversations": []}, {"other": 1}]))
    rng = np.random.default_rng(0)
    asks = ShareGPT(path=file, output=None, longest=50).draw(TEXT, rng, 3)
    assert asks == [Ask("a b c d e", 4)] * 3
    with pytest.raises(ConfigError, match="no request"):
        ShareGPT(path=file, output=None, longest=5).draw(TEXT, rng, 3)


def test_lines_of_a_file_are_asked_in_their_order(tmp_path):
    file = tmp_path / "c.jsonl"
    messages = [{"role": "user", "content": "x"}]
    file.write_text(
        '{"prompt": "one"}\n\n{"prompt": [5, 6], "output_tokens": 3}\n'
        + json.dumps({"messages": messages})
    )
    asks = Custom(path=file, output=9).draw(TEXT, np.random.default_rng(0), 4)
    assert asks == [Ask("one", 9), Ask([5, 6], 3), Ask(messages, 9), Ask("one", 9)]


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"prompt": ""}', '{"prompt": "a", "output_tokens": 0}']
)
def test_a_wrong_line_is_named(tmp_path, line):
    file = tmp_path / "c.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(ConfigError, match="line 2"):
        Custom(path=file, output=9).draw(TEXT, np.random.default_rng(0), 4)


def test_bodies_ask_for_usage_and_for_as_many_tokens():
    address = Address.parse("localhost:1", "")
    target = Target(address=address, model="m", ignore_eos=True, fields={"top_k": 3})
    body = target.body(Ask([1, 2], 7))
    assert (body["prompt"], body["max_tokens"], body["top_k"]) == ([1, 2], 7, 3)
    assert (body["ignore_eos"], body["stream_options"]) == (True, {"include_usage": True})
    chat = Target(address=address, model="m", endpoint="chat")
    assert chat.body(Ask("hi", 7))["messages"] == [{"role": "user", "content": "hi"}]
    messages = [{"role": "user", "content": "x"}]
    assert chat.body(Ask(messages, 7))["messages"] == messages
    with pytest.raises(ConfigError, match="conversations"):
        target.body(Ask(messages, 7))
