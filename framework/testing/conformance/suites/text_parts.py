"""What the suites of parsers share: texts in pieces, and what a push costs."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Callable

from framework.testing.conformance.cases import Case

WORDS = ("sun", "moon", "42", "\u4e2d\u6587", "\U0001f600", "caf\u00e9", "a.b", "it's")
MARKS = (
    *("<tool_call>", "</tool_call>", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "<function="),
    *("<think>", "</think>", "<|im_end|>", "</s>", "```json\n", "```", "{", "}", "[", "]"),
    *('{"name": "weather", ', '"arguments": {', '"', "\\", "\\u00", "<", ": ", ", ", "\n", "\n\n"),
)
"""Pieces of the ways in which models are known to write, and what stands in JSON."""
ODD_PROSE = (
    "a\n\n\nb  c\t\td\r\ne\u0301 \ufb01\u00a0\u200bf  \n g\0\x1b[0m\ufffd Ma\u00df \u00c9T\u00c9"
)
"""Characters that a program would like to make neater."""
LONG = 1_000_000
"""Characters of a long text."""
AGAIN = "; hold pieces, and read none of them again"


def cuts(case: Case, text: str) -> list[list[str]]:
    """Every character alone, and cut at random."""
    found = [list(text)]
    for _ in range(3):
        places = sorted(int(place) for place in case.rng.integers(0, len(text) + 1, 4))
        edges = [0, *places, len(text)]
        found.append([text[a:b] for a, b in itertools.pairwise(edges)])
    return found


def prose(case: Case, count: int) -> str:
    """Words with spaces between."""
    return " ".join(str(word) for word in case.rng.choice(WORDS, count))


def mixture(case: Case, own: tuple[str, ...], count: int) -> str:
    """Words, marks, and whole or broken pieces of `own`."""
    parts = []
    for _ in range(count):
        source = (WORDS, MARKS, own)[int(case.rng.integers(0, 3))]
        part = source[int(case.rng.integers(0, len(source)))]
        if source is own and case.rng.random() < 0.4:
            edge = int(case.rng.integers(0, len(part) + 1))
            part = part[:edge] if case.rng.random() < 0.5 else part[edge:]
        parts.append(part + " " * int(case.rng.random() < 0.3))
    return "".join(parts)


def note_text(case: Case, text: str, pieces: list[str] | None = None) -> None:
    """For the line that reproduces a failure."""
    case.note(text=json.dumps(text))
    if pieces is not None:
        case.note(cut=json.dumps([len(piece) for piece in pieces]))


def time_of_push(now: Callable[[], float], push: Callable[[str], object], text: str) -> float:
    """Seconds that a push of one character takes once `text` was pushed: the median of some."""
    push(text)
    seconds = []
    for _ in range(21):
        started = now()
        push("x")
        seconds.append(now() - started)
    return statistics.median(seconds)
