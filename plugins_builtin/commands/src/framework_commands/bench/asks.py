"""What is asked in a benchmark: prompts by data set, with the length of their answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framework.errors import ConfigError

Messages = list[dict[str, Any]]
FEWEST = 4
"""Tokens below which a conversation of a file is left out, as question or as answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.  prompt: a text, token ids or messages.  output: most tokens of the answer."""

    prompt: str | list[int] | Messages
    output: int


class Words:
    """Makes prompts of a wanted length, and counts.

    ids: ordinary tokens of the model; none: its tokens are not known, a prompt is of words and
    a length is one in words.  count: tokens of a text.
    """

    def __init__(self, ids: Sequence[int], count: Callable[[str], int] | None = None) -> None:
        self._ids = np.array(sorted(set(ids)), np.int64)
        self._count = count
        self.exact = len(self._ids) > 0

    def draw(self, rng: np.random.Generator, length: int) -> str | list[int]:
        """A prompt of `length` tokens."""
        if self.exact:
            return [int(one) for one in rng.choice(self._ids, length)]
        return " ".join(rng.choice(COMMON, length))

    def count(self, text: str) -> int:
        """Tokens of a text, or its words where tokens are not known."""
        return len(text.split()) if self._count is None else self._count(text)


COMMON = [
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by"),
    *("on", "not", "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an"),
    *("they", "which", "one", "you", "were", "all", "her", "she", "there", "would", "their", "we"),
    *("him", "been", "has", "when", "who", "will", "no", "more", "if", "out", "so", "up", "said"),
    *("what", "its", "about", "than", "into", "them", "can", "only", "other", "time", "new"),
]


def joined(one: str | list[int], other: str | list[int]) -> str | list[int]:
    """One prompt behind the other; both are of one kind."""
    if isinstance(one, list) and isinstance(other, list):
        return one + other
    return f"{one} {other}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """Lengths are uniform in [length x (1 - spread), length x (1 + spread)]; all prompts begin
    with the same `prefix` tokens."""

    input: int
    output: int
    spread: float
    prefix: int

    def draw(self, words: Words, rng: np.random.Generator, count: int) -> list[Ask]:
        """As many asks."""
        head = words.draw(rng, self.prefix)
        inputs, outputs = (_lengths(rng, n, self.spread, count) for n in (self.input, self.output))
        return [
            Ask(joined(head, words.draw(rng, int(one))), int(other))
            for one, other in zip(inputs, outputs, strict=True)
        ]


def _lengths(
    rng: np.random.Generator, length: int, spread: float, count: int
) -> np.ndarray[Any, Any]:
    low, high = max(1, int(length * (1 - spread))), max(1, int(length * (1 + spread)))
    return rng.integers(low, high, count, endpoint=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixRepetition:
    """`prefixes` different beginnings, each shared by as many prompts, in mixed order."""

    prefixes: int
    prefix: int
    suffix: int
    output: int

    def draw(self, words: Words, rng: np.random.Generator, count: int) -> list[Ask]:
        """As many asks."""
        heads = [words.draw(rng, self.prefix) for _ in range(self.prefixes)]
        order = rng.permutation(np.arange(count) % self.prefixes)
        return [Ask(joined(heads[i], words.draw(rng, self.suffix)), self.output) for i in order]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGPT:
    """First question and answer of each conversation of a file: a JSON list of
    {"conversations": [{"from": ..., "value": TEXT}, ...]}.  output: instead of the length of the
    answer there.  longest: tokens of both together, of what is taken."""

    path: Path
    output: int | None
    longest: int

    def draw(self, words: Words, rng: np.random.Generator, count: int) -> list[Ask]:
        """As many asks; Raises ConfigError for a file that holds none."""
        found = _json(self.path)
        rows = found if isinstance(found, list) else []
        pairs = [pair for row in rows if (pair := _first_exchange(row)) is not None]
        asks: list[Ask] = []
        for index in rng.permutation(len(pairs)):
            question, answer = pairs[index]
            lengths = words.count(question), self.output or words.count(answer)
            if min(lengths) >= FEWEST and sum(lengths) <= self.longest:
                asks.append(Ask(question, lengths[1]))
            if len(asks) == count:
                break
        return _repeated(asks, count, self.path, "conversations of two turns or more")


def _first_exchange(row: object) -> tuple[str, str] | None:
    turns = row.get("conversations", row.get("conversation")) if isinstance(row, dict) else None
    if not isinstance(turns, list) or len(turns) < 2:
        return None
    asked, said = (turn.get("value") if isinstance(turn, dict) else None for turn in turns[:2])
    return (asked, said) if isinstance(asked, str) and isinstance(said, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """A file of lines {"prompt": TEXT or token ids} or {"messages": [...]}, each with
    "output_tokens" if need be; in their order.  output: where a line says none."""

    path: Path
    output: int

    def draw(self, words: Words, rng: np.random.Generator, count: int) -> list[Ask]:
        """As many asks.  Raises ConfigError that names the line."""
        asks = []
        for number, line in _lines(self.path):
            asks.append(self._ask(line, f"{self.path}, line {number}"))
            if len(asks) == count:
                break
        return _repeated(asks, count, self.path, 'lines {"prompt": TEXT}')

    def _ask(self, line: str, place: str) -> Ask:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{place} is no JSON: {error}") from error
        prompt = row.get("prompt", row.get("messages")) if isinstance(row, Mapping) else None
        output = row.get("output_tokens", self.output) if isinstance(row, Mapping) else None
        fine = isinstance(prompt, str | list) and prompt
        if not fine or type(output) is not int or output < 1:
            raise ConfigError(
                f"{place} is no request",
                expected='{"prompt": TEXT} or {"messages": [...]}, "output_tokens" an integer >= 1',
                found=f"{line:.80}",
            )
        assert isinstance(prompt, str | list)
        return Ask(prompt, output)


DataSet = Random | PrefixRepetition | ShareGPT | Custom


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"the data set cannot be read: {error}", found=str(path)) from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the data set cannot be read: {error}", found=str(path)) from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line


def _repeated(asks: list[Ask], count: int, path: Path, expected: str) -> list[Ask]:
    """From the start again where there are too few."""
    if not asks:
        raise ConfigError("the data set holds no request", expected=expected, found=str(path))
    return [asks[index % len(asks)] for index in range(count)]
