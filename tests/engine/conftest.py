"""A front end over the core and a scripted runner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from framework.core.config import CoreConfig
from framework.core.engine_core import EngineCore
from framework.core.policies import FirstComeFirstServed
from framework.engine.client import InProcessClient
from framework.engine.inputs import InputProcessor
from framework.engine.io import IOProcessors
from framework.io.chat import ChatProcessor
from framework.io.text import TextProcessor
from framework.testing.byte_tokenizer import EOS, ByteTokenizer
from framework.testing.scripted import ScriptedRunner
from framework.testing.scripts import from_outputs


class Harness:
    """A front end over a core whose outputs are given.

    outputs: internal request id ("0", "1.0", ...) -> token ids; after them EOS.
    """

    def __init__(
        self,
        outputs: Mapping[str, Sequence[int]],
        tokenizer: ByteTokenizer,
        *,
        max_model_len: int = 64,
        num_pages: int = 200,
        **options: Any,
    ) -> None:
        self.tokenizer = tokenizer
        runner_options = {
            name: options.pop(name)
            for name in ("drafter", "fail_rows", "lose_pages", "delay", "depth")
            if name in options
        }
        known = {"loop_depth", "max_drafts", "max_num_seqs", "max_num_batched_tokens"}
        core_options = {name: options.pop(name) for name in known & set(options)}
        self.runner = ScriptedRunner(
            from_outputs(defaultdict(tuple, outputs), EOS),
            vocab_size=tokenizer.vocab_size,
            num_pages=num_pages,
            **runner_options,
        )
        config = CoreConfig(max_model_len=max_model_len, **core_options)
        self.core = EngineCore(
            self.runner, self.runner.info(), config, policy=FirstComeFirstServed()
        )
        self.inputs = InputProcessor(
            tokenizer,
            vocab_size=self.core.vocab_size,
            max_model_len=self.core.max_model_len,
            io_processors=IOProcessors({"text": TextProcessor(), "chat": ChatProcessor()}),
            eos_ids=options.pop("eos_ids", tokenizer.eos_ids),
            **options,
        )
        self.client = InProcessClient(self.core, tokenizer)

    def stream(self, prompt: object, sampling: object) -> list[Any]:
        """All outputs of one request."""
        request = self.inputs.process(prompt, sampling)
        self.client.add([request])
        outputs = [self.client.wait(request.request_id)]
        while not outputs[-1].finished:
            outputs.append(self.client.wait(request.request_id))
        self.client.settle()
        return outputs

    def run(self, prompt: object, sampling: object) -> Any:
        """The last output of one request."""
        return self.stream(prompt, sampling)[-1]

    def check_empty(self) -> None:
        """Nothing is left in the engine."""
        self.core.check_integrity()
        assert not self.core.has_work()
        assert self.core.stats.running == self.core.stats.waiting == 0
        processor = self.client._processor
        assert processor.settled
        assert processor.num_requests == self.client.num_requests == 0


@pytest.fixture(scope="session")
def byte_tokenizer() -> type[ByteTokenizer]:
    return ByteTokenizer


@pytest.fixture
def harness() -> Callable[..., Harness]:
    def make(
        outputs: Mapping[str, Sequence[int]] | None = None,
        tokenizer: ByteTokenizer | None = None,
        **options: Any,
    ) -> Harness:
        return Harness(outputs or {}, tokenizer or ByteTokenizer(), **options)

    return make
