"""The grammar applies to what follows the reasoning, drafts included."""

from __future__ import annotations

import json

import numpy as np
import pytest

from framework.contracts.structured_output import Grammar, vocabulary_of
from framework.testing.byte_tokenizer import EOS, FIRST_WORD, ByteTokenizer
from framework_structured.progress import Progress
from framework_structured.thinking import Reasoning

LLGuidance = pytest.importorskip("framework_llguidance").LLGuidance
parsers = pytest.importorskip("framework_parsers.thinking")

OPEN, CLOSE, CLOSE_Y, SPACES = (FIRST_WORD + n for n in range(4))
TOKENIZER = ByteTokenizer(["<think>", "</think>", "</think>y", "</think>\n\n"])
VOCABULARY = vocabulary_of(TOKENIZER, TOKENIZER.vocab_size, [EOS])
Y, E, S, N, Q = b"yesnq"


@pytest.fixture(scope="module")
def ready():
    backend = LLGuidance()
    data = backend.compile(Grammar("choice", json.dumps(["yes", "no"])), VOCABULARY)
    return backend.load(data, VOCABULARY)


@pytest.fixture
def begin(ready):
    """An output of a parser after a prompt."""

    def make(parser, prompt=b""):
        reasoning = Reasoning(parser(), TOKENIZER, VOCABULARY.words)
        ends = np.zeros(VOCABULARY.words, np.uint32)
        ends[EOS // 32] = 1 << EOS % 32
        return Progress(ready.matcher(), ends, reasoning.begin(list(prompt)))

    return make


def masks(progress, *drafts):
    """The sets of allowed tokens; None where all are."""
    rows = np.zeros((1 + len(drafts), VOCABULARY.words), np.uint32)
    filled = progress.fill(rows, list(drafts))
    bits = np.unpackbits(rows[:filled].view(np.uint8), axis=1, bitorder="little")
    return [None if row.all() else set(np.flatnonzero(row).tolist()) for row in bits]


def test_a_model_may_think_or_answer_at_once(begin):
    progress = begin(parsers.Qwen3)
    [first] = masks(progress)
    assert first == {Y, N, OPEN, ord("<")}
    progress.take([Y])
    assert masks(progress) == [{E}]
    assert progress.fault is None


def test_an_opening_may_come_in_pieces(begin):
    progress = begin(parsers.Qwen3)
    progress.take(b"<th")
    assert masks(progress) == [{ord("i")}]
    progress.take(b"ink>why? nothing")
    assert masks(progress) == []
    progress.take([CLOSE])
    assert masks(progress) == [{Y, N}]


@pytest.mark.parametrize("prompt", [b"<think>", b"<think>\n"])
def test_reasoning_that_the_prompt_opens_is_free(begin, prompt):
    progress = begin(parsers.Qwen3, prompt)
    assert masks(progress) == []
    progress.take([Q, *b"</think", ord(">")])
    assert masks(progress) == [{Y, N}]


def test_reasoning_that_the_prompt_closes_is_over(begin):
    assert masks(begin(parsers.Qwen3, b"<think>\n\n</think>\n\n")) == [{Y, N}]


def test_what_stands_behind_the_end_in_one_token_counts(begin):
    progress = begin(parsers.DeepSeekR1)
    progress.take([Q, CLOSE_Y])
    assert masks(progress) == [{E}]
    spaced = begin(parsers.DeepSeekR1)
    spaced.take([SPACES])
    assert masks(spaced) == [{Y, N}]
    wrong = begin(parsers.DeepSeekR1)
    wrong.take([CLOSE, Q])
    assert "not allow" in wrong.fault


def test_drafts_past_the_end_of_the_reasoning_are_masked(begin):
    progress = begin(parsers.DeepSeekR1)
    assert masks(progress, Q, Q) == []
    assert masks(progress, Q, CLOSE) == [None, None, {Y, N}]
    assert masks(progress, Q, CLOSE, Y, E, Q) == [None, None, {Y, N}, {E}, {S}]
    assert masks(progress, CLOSE_Y, E) == [None]
    progress.take([CLOSE])
    assert masks(progress, Y, E, S, EOS, EOS) == [{Y, N}, {E}, {S}, {EOS}, {EOS}]
    assert masks(progress, Q, E) == [{Y, N}]
    progress.take([Y, E, S, EOS])
    assert masks(progress, EOS) == [{EOS}]
