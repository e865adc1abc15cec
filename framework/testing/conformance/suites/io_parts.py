"""What the clauses for IO processors are made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from framework.contracts.io_processor import EnginePrompt, Reading, Task
from framework.contracts.tokenizer import TextLimit
from framework.engine.outputs import CompletionOutput, RequestMetrics, RequestOutput
from framework.errors import TooLongError
from framework.testing.byte_tokenizer import ByteTokenizer

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1 << 70,
    0.5,
    float("nan"),
    "",
    " ",
    "\0",
    "\ud800",
    "x" * 10_000,
    b"bytes",
    [],
    [None],
    [-1],
    [True],
    [1 << 70],
    [0.5],
    [[]],
    [[1], "a"],
    ["a", None],
    {},
    {"": None},
    {"a": {"b": [1, 2.5, "c"]}},
    {1: 2},
    [{"role": "user"}],
    [{"role": 5, "content": {}}],
)
"""What may come over the network."""
SIZE = 4


class OwnTokenizer(ByteTokenizer):
    """strangers: how often it was used by another thread than the one that made it."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()
        self.strangers = 0

    def _look(self) -> None:
        self.strangers += threading.get_ident() != self._owner

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        self._look()
        return super().encode(text, add_special_tokens=add_special_tokens)

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        self._look()
        return super().render_chat(messages, **options)


class NoRoom(TextLimit):
    """No text fits."""

    @property
    def characters(self) -> int:
        return 0

    def check(self, text: str) -> None:
        raise TooLongError("the prompt is too long", parameter="prompt", found=f"{len(text)}")


def outputs_of(reading: Reading, task: Task) -> list[RequestOutput]:
    """One finished output per prompt, each of its own."""
    return [_finished(number, prompt, task) for number, prompt in enumerate(reading.prompts)]


def _finished(number: int, prompt: EnginePrompt, task: Task) -> RequestOutput:
    embeds = task == "embed"
    completion = CompletionOutput(
        index=0,
        text="" if embeds else f"text {number}",
        token_ids=[] if embeds else [number, 7],
        finish_reason="stop",
    )
    vector = np.arange(number + 1, number + 1 + SIZE, dtype=np.float32) if embeds else None
    return _output(f"r{number}", prompt, completion, vector)


def ended(
    prompt: EnginePrompt, reason: Literal["error", "abort"] | str, *, refused: bool = False
) -> RequestOutput:
    """The output of a request that the engine failed or refused, or that somebody ended."""
    completion = CompletionOutput(
        index=0,
        text="",
        token_ids=[],
        finish_reason="error" if reason == "error" else "abort",
        stop_reason="a fault" if reason == "error" else None,
        refused=refused,
    )
    return _output("last", prompt, completion, None)


def _output(
    name: str, prompt: EnginePrompt, completion: CompletionOutput, vector: Any
) -> RequestOutput:
    return RequestOutput(
        request_id=name,
        prompt=prompt.text,
        prompt_token_ids=list(prompt.ids),
        prompt_logprobs=None,
        outputs=[completion],
        finished=True,
        metrics=RequestMetrics(arrival_time=0.0),
        pooled=vector,
    )


def together(work: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own; the first error is raised here."""
    raised: list[BaseException] = []
    start = threading.Barrier(len(work), timeout=60)

    def run(one: Callable[[], None]) -> None:
        try:
            start.wait()
            one()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
