"""Matchers over XGrammar's own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xgrammar

from framework.contracts.structured_output import Vocabulary

Row = npt.NDArray[np.uint32]
_CONTROL = frozenset({*range(32)} - {ord("\n")})
"""Bytes that no text in JSON holds, and that the library lets into texts of bounded length.  As
white space they are not needed."""


class Tokens:
    """A vocabulary as the library sees it: tokens without bytes are special to it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._info = xgrammar.TokenizerInfo(
            list(vocabulary.tokens),
            xgrammar.VocabType.RAW,
            vocab_size=len(vocabulary),
            stop_token_ids=list(vocabulary.eos_ids),
        )
        ends = set(vocabulary.eos_ids)
        said = {token for token, data in enumerate(vocabulary.tokens) if data or token in ends}
        plain = {token for token in said if _CONTROL.isdisjoint(vocabulary.tokens[token])}
        self._sayable = {
            json: (frozenset(tokens), _row(tokens, vocabulary.words))
            for json, tokens in ((False, said), (True, plain))
        }

    def compile(self, grammar: xgrammar.Grammar, *, json: bool) -> bytes:
        """json: all of the output is JSON."""
        compiler = xgrammar.GrammarCompiler(self._info, max_threads=1, cache_enabled=False)
        data = str(compiler.compile_grammar(grammar).serialize_json()).encode()
        return (b"j" if json else b"-") + data

    def load(self, compiled: bytes) -> LoadedGrammar:
        grammar = xgrammar.CompiledGrammar.deserialize_json(compiled[1:].decode(), self._info)
        return LoadedGrammar(grammar, *self._sayable[compiled.startswith(b"j")])


def _row(tokens: set[int], words: int) -> Row:
    bits = np.zeros(32 * words, np.uint8)
    bits[sorted(tokens)] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


class LoadedGrammar:
    """sayable: tokens that may come at all; within: the same as a bitmask.  The library prints
    a warning for each other token that it is asked about, and leaves bits beyond the vocabulary."""

    def __init__(
        self, compiled: xgrammar.CompiledGrammar, sayable: frozenset[int], within: Row
    ) -> None:
        self._compiled = compiled
        self.sayable = sayable
        self.within = within

    def matcher(self) -> XGrammarMatcher:
        return XGrammarMatcher(xgrammar.GrammarMatcher(self._compiled), self)


class XGrammarMatcher:
    """One output."""

    def __init__(self, matcher: xgrammar.GrammarMatcher, loaded: LoadedGrammar) -> None:
        self._matcher = matcher
        self._loaded = loaded

    def accept(self, token: int) -> bool:
        if self._matcher.is_terminated() or token not in self._loaded.sayable:
            return False
        return bool(self._matcher.accept_token(token))

    def rollback(self, tokens: int) -> None:
        if tokens:
            self._matcher.rollback(tokens)

    def fill_bitmask(self, row: Row) -> None:
        row[:] = 0
        if not self._matcher.is_terminated():
            self._matcher.fill_next_token_bitmask(row.view(np.int32).reshape(1, -1))
            row &= self._loaded.within

    def is_terminated(self) -> bool:
        return bool(self._matcher.is_terminated())
