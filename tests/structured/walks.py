"""Outputs of a backend without a model: tokens are drawn from what its masks allow."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from framework.contracts.base import Rejected
from framework.contracts.structured_output import CompiledGrammar, StructuredOutput
from framework.contracts.structures import grammar_of, query_of
from framework.errors import UnsupportedError
from framework.testing.conformance.suites.structured_examples import VOCABULARY

CLASSES = {"llguidance": "LLGuidance", "outlines_core": "OutlinesCore", "xgrammar": "XGrammar"}
CLOSING = frozenset(b'"}],')
MOST = 400


def backend(name: str) -> StructuredOutput:
    made: StructuredOutput = getattr(import_module(f"framework_{name}"), CLASSES[name])(None)
    return made


def compiled(own: StructuredOutput, schema: Any) -> CompiledGrammar:
    """Raises InputError and UnsupportedError, as requests with that schema are refused."""
    grammar = grammar_of({"json": schema})
    answer = own.answer(query_of(grammar))
    if isinstance(answer, Rejected):
        raise UnsupportedError("; ".join(map(str, answer.reasons)))
    own.check(grammar)
    return own.load(own.compile(grammar, VOCABULARY), VOCABULARY)


def walk(grammar: CompiledGrammar, rng: random.Random) -> bytes | None:
    """One output; None for one that is long."""
    matcher, data = grammar.matcher(), b""
    row = np.zeros(VOCABULARY.words, np.uint32)
    for _ in range(MOST):
        matcher.fill_bitmask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        assert allowed, f"nothing may follow {data!r}"
        ends = [token for token in allowed if token in VOCABULARY.eos_ids]
        closing = [token for token in allowed if token in CLOSING]
        if ends and rng.random() < 0.5:
            return data
        if closing and rng.random() < 0.4:
            allowed = closing
        token = rng.choice([token for token in allowed if token not in ends] or ends)
        if token in ends:
            return data
        assert matcher.accept(token)
        data += VOCABULARY.tokens[token]
    return None


def values(grammar: CompiledGrammar, count: int, seed: int = 5) -> Iterator[Any]:
    """Of `count` outputs those that came to an end, as JSON."""
    rng = random.Random(seed)
    for _ in range(count):
        data = walk(grammar, rng)
        if data is not None:
            yield json.loads(data)
