"""A budget of reasoning: when it is spent the model writes the mark, and nothing else."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from framework.contracts.participant import EngineContext
from framework.contracts.sampling import SamplingParams
from framework.errors import UnsupportedError
from framework.plugins.registry import PluginRegistry
from framework.testing.byte_tokenizer import FIRST_WORD, ByteTokenizer
from framework.testing.conformance import check
from framework.testing.conformance.suites.scheduler_participant import SchedulerParticipantSuite
from framework_parsers.budget import ThinkingBudget
from framework_parsers.thinking import DeepSeekR1, Qwen3
from framework_parsers.thought import Ending, Thought, mark_of

OPEN, CLOSE = FIRST_WORD, FIRST_WORD + 1
TOKENIZER = ByteTokenizer(["<think>", "</think>"])
WORDS = -(-TOKENIZER.vocab_size // 32)
MARK = tuple(b"</think>")
"""As a model without a token for it writes it."""


def begin(parser, budget, prompt="", mark=(CLOSE,)):
    return Thought(Ending(parser(), TOKENIZER, mark), prompt, budget)


def masks(thought, *drafts):
    """The only token allowed at each place, None where all are."""
    rows = np.full((1 + len(drafts), WORDS), 7, np.uint32)
    filled = thought.fill(rows, list(drafts))
    bits = np.unpackbits(rows[:filled].view(np.uint8), axis=1, bitorder="little")
    found = [None if row.all() else np.flatnonzero(row).tolist() for row in bits]
    return [None if one is None else one[0] if len(one) == 1 else one for one in found]


def written(thought, tokens, most=40):
    """What comes of a model that would write `tokens`, and goes on where it was made to end."""
    out, tokens = [], list(tokens)
    while tokens and len(out) < most:
        [want] = masks(thought) or [None]
        out.append(tokens.pop(0) if want is None else want)
        thought.take(out[-1:])
    return out


@pytest.mark.parametrize("mark", [(CLOSE,), MARK])
@pytest.mark.parametrize("budget", [0, 1, 4])
def test_so_many_tokens_are_thought_and_then_the_mark_comes(budget, mark):
    thought = begin(DeepSeekR1, budget, mark=mark)
    out = written(thought, b"abcdefgh")
    assert out[: budget + len(mark)] == [*b"abcdefgh"[:budget], *mark]
    assert thought.ended
    assert thought.fault is None


def test_reasoning_that_ends_in_time_is_left_alone():
    tokens = [*b"why", CLOSE, *b"because of that"]
    assert written(begin(DeepSeekR1, 4), tokens) == tokens


def test_tokens_count_from_where_reasoning_opens():
    assert written(begin(Qwen3, 2), [*b"\n\n", OPEN, *b"abc"])[:6] == [
        *b"\n\n",
        OPEN,
        *b"ab",
        CLOSE,
    ]
    assert written(begin(Qwen3, 2), [*b"<think>abc"])[:10] == [*b"<think>ab", CLOSE]
    assert written(begin(Qwen3, 1, "<think>\n"), b"abc")[:2] == [ord("a"), CLOSE]


def test_an_answer_without_reasoning_has_no_budget():
    for parser, prompt in ((Qwen3, ""), (Qwen3, "<think></think>"), (DeepSeekR1, "</think>")):
        assert written(begin(parser, 0, prompt), b"an answer") == list(b"an answer")


def test_half_a_mark_before_the_end_harms_nothing():
    thought = begin(DeepSeekR1, 4, mark=MARK)
    assert written(thought, b"ab</xxxx")[:12] == [*b"ab</", *MARK]
    assert thought.ended


def test_drafts_are_masked_where_the_budget_is_spent():
    def at(budget, mark=(CLOSE,)):
        return begin(DeepSeekR1, budget, mark=mark)

    a, b, c = b"abc"
    assert masks(at(3), a, b) == []
    assert masks(at(2), a, b) == [None, None, CLOSE]
    assert masks(at(2), a, b, c) == [None, None, CLOSE]
    assert masks(at(2), a, b, CLOSE, c) == [None, None, CLOSE, None, None]
    assert masks(at(2), a, CLOSE, b, c) == []
    assert masks(at(0, MARK), *MARK[:3]) == list(MARK[:4])
    assert masks(at(0, MARK), MARK[0], a, b) == list(MARK[:2])
    later = begin(Qwen3, 1)
    assert masks(later, OPEN, a, b) == [None, None, CLOSE]
    assert masks(later, a, OPEN, b) == []
    assert masks(later) == []


def test_drafts_change_nothing():
    """A look at drafts leaves the state as it was, half a character included."""
    thought = begin(DeepSeekR1, 3)
    first, second = "ä".encode()
    thought.take([first])
    assert masks(thought, second, *b"ab") == [None, None, CLOSE]
    assert written(thought, [second, *b"abc"])[:3] == [second, ord("a"), CLOSE]


def test_a_parser_that_does_not_know_its_mark_is_a_fault():
    thought = begin(DeepSeekR1, 1, mark=(ord("!"),))
    written(thought, b"abc", most=2)
    assert "does not know it" in thought.fault


def test_the_mark_is_read_from_the_example():
    assert mark_of(Qwen3()) == "</think>"


def test_without_a_parser_a_budget_is_refused():
    def reader(**choices):
        context = EngineContext(
            registry=PluginRegistry(),
            choices=choices,
            load_tokenizer=lambda: (TOKENIZER, frozenset()),
        )
        return ThinkingBudget().front_half(context)

    asked = SamplingParams(thinking_token_budget=4)
    assert reader().read(SamplingParams()) is None
    with pytest.raises(UnsupportedError, match="without a reasoning parser"):
        reader().read(asked)
    assert reader(reasoning_parser=("qwen3",)).read(asked) == b"\x04"


class BudgetSuite(SchedulerParticipantSuite):
    """Requests with a budget, in an engine with a reasoning parser."""

    def context(self):
        # The suite's runner has a larger vocabulary than its tokenizer.
        choices = {"reasoning_parser": ("deepseek_r1",)}
        return dataclasses.replace(super().context(), choices=choices, vocab_size=1000)

    def sampling(self, case):
        return SamplingParams(max_tokens=8, thinking_token_budget=int(case.rng.integers(0, 9)))


def test_the_participant_conforms():
    report = check("scheduler_participant:thinking_budget", suite=BudgetSuite)
    assert not report.failures, report.text()
