"""The published fakes: what they keep, and what they refuse."""

from __future__ import annotations

import pytest

from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.policies import FirstComeFirstServed
from framework.errors import InputError
from framework.testing import ScriptedRunner
from framework.testing.byte_tokenizer import ByteTokenizer
from tests.core.conftest import Harness


def test_the_scripted_runner_keeps_steps_only_if_asked():
    runner = ScriptedRunner()
    one = Harness()
    one.runner = runner
    one.core = EngineCore(runner, runner.info(), CoreConfig(), policy=FirstComeFirstServed())
    one.add("a", [1], 20)
    one.run()
    assert (runner.steps, runner.plans, runner.lates) == (20, [], [])
    kept = Harness()
    kept.add("a", [1], 20)
    kept.run()
    assert kept.runner.steps == len(kept.runner.plans) == len(kept.runner.lates) == 20


@pytest.mark.parametrize("text", ["\ud800", "fine \udfff"])
def test_half_a_surrogate_pair_is_one_clear_error(text):
    tokenizer = ByteTokenizer()
    chats = [
        lambda: tokenizer.encode(text),
        lambda: tokenizer.render_chat([{"role": "user", "content": text}]),
        lambda: tokenizer.render_chat([{"role": text, "content": "hi"}]),
        lambda: tokenizer.render_chat([], chat_template=text),
    ]
    for ask in chats:
        with pytest.raises(InputError, match="half of a surrogate pair"):
            ask()
    assert tokenizer.decode(tokenizer.encode("fine \U0001f600")) == "fine \U0001f600"
