"""Parts of responses that completions and chat completions share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from framework.errors import InputError
from framework_http.sse import JSON

if TYPE_CHECKING:
    from framework.engine.outputs import CompletionOutput, Logprob, LogprobsAt, RequestOutput


class Envelope:
    """What is the same in every chunk of a response."""

    def __init__(self, prefix: str, kind: str, model: str) -> None:
        self._head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }

    def __call__(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """A response or a chunk with these choices."""
        return {**self._head, "choices": choices, **more}


class Usage:
    """Counts tokens over the prompts of a response and the outputs of each."""

    def __init__(self) -> None:
        self._prompts: dict[int, tuple[int, int]] = {}
        self._generated = 0

    def take(self, index: int, output: RequestOutput) -> None:
        """Count an output of prompt `index`; its token ids are what is new of it."""
        self._prompts[index] = (len(output.prompt_token_ids), output.num_cached_tokens)
        self._generated += sum(len(one.token_ids) for one in output.outputs)

    def as_dict(self) -> dict[str, Any]:
        """The field `usage`."""
        prompt = sum(tokens for tokens, _ in self._prompts.values())
        cached = sum(hit for _, hit in self._prompts.values())
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._generated,
            "total_tokens": prompt + self._generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }


def usage_of(outputs: Iterable[RequestOutput]) -> dict[str, Any]:
    """The field `usage` of final outputs."""
    usage = Usage()
    for index, output in enumerate(outputs):
        usage.take(index, output)
    return usage.as_dict()


def ending(output: CompletionOutput) -> dict[str, Any]:
    """finish_reason and stop_reason of a choice; both are there while it runs, too."""
    return {"finish_reason": output.finish_reason, "stop_reason": output.stop_reason}


def own(entry: LogprobsAt) -> Logprob:
    """The token itself comes first."""
    return next(iter(entry.values()))


def best(entry: LogprobsAt, most: int) -> list[Logprob]:
    """The `most` likeliest, best first."""
    return sorted(entry.values(), key=lambda one: one.rank)[:most]


def check_written(given_back: dict[str, Any]) -> None:
    """Raises InputError, that names the field, for what a request said and no answer can repeat:
    JSON that can be read may have halves of characters."""
    for name, value in given_back.items():
        try:
            JSON.encode(value)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{name} cannot be given back in the answer",
                parameter=name,
                expected="text without lone surrogates",
                found=f"{error!s:.100}",
            ) from None


def finite(value: float) -> float:
    """JSON has no infinity; a masked token has this log-probability."""
    return max(value, -9999.0)
