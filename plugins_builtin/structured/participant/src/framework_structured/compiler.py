"""Grammars become ready beside the steps, and stay ready."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from framework.contracts.participant import EngineContext
from framework.contracts.structured_output import (
    CompiledGrammar,
    Grammar,
    StructuredOutput,
    Vocabulary,
    vocabulary_of,
)
from framework.errors import UnsupportedError
from framework.plugins.blame import blaming
from framework_structured.asked import Asked
from framework_structured.kept import Kept
from framework_structured.options import StructuredOptions
from framework_structured.thinking import Reasoning
from framework_structured.workers import Workers

if TYPE_CHECKING:
    from framework.contracts.reasoning_parser import ReasoningParser
    from framework.contracts.tokenizer import Tokenizer


class Compiler:
    """For one engine, hence one tokenizer.  Called from the thread of the engine core."""

    def __init__(self, context: EngineContext, options: StructuredOptions) -> None:
        self._context = context
        self._vocabulary: Vocabulary | None = None
        self._reasoning: Reasoning | None = None
        self._lock = threading.Lock()
        self.workers = Workers(context, options, self.vocabulary)
        self._threads = ThreadPoolExecutor(options.workers, "framework-grammars")
        self._backends: dict[str, StructuredOutput] = {}
        self._kept: Kept[Future[CompiledGrammar]] = Kept(options.cached_grammars)

    def ready(self, asked: Asked) -> Future[CompiledGrammar]:
        """The grammar, once it is ready; its error is that of the backend, or UnsupportedError
        where it took too long."""
        key = asked.backend, asked.grammar.key
        return self._kept.get(key, lambda: self._begin(asked))

    def vocabulary(self) -> Vocabulary:
        """Made once, by whoever needs it first."""
        with self._lock:
            if self._vocabulary is None:
                tokenizer, ends = self._context.load_tokenizer()
                size = self._context.vocab_size
                self._reasoning = self._parsing(tokenizer, -(-size // 32))
                self._vocabulary = vocabulary_of(tokenizer, size, tuple(ends))
        return self._vocabulary

    def reasoning(self) -> Reasoning | None:
        """What the operator's reasoning parser says; for the thread of the engine core alone."""
        self.vocabulary()
        return self._reasoning

    def _parsing(self, tokenizer: Tokenizer, words: int) -> Reasoning | None:
        names = self._context.choices.get("reasoning_parser", ())
        if not names:
            return None
        made = self._context.registry.create("reasoning_parser", names[0], named=True)
        return Reasoning(cast("ReasoningParser", made), tokenizer, words)

    def close(self) -> None:
        """End threads and processes."""
        self.workers.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, asked: Asked) -> Future[CompiledGrammar]:
        if asked.backend not in self._backends:
            made = self._context.registry.create("structured_output", asked.backend, named=True)
            self._backends[asked.backend] = cast("StructuredOutput", made)
        backend = self._backends[asked.backend]
        return self._threads.submit(self._compile, asked.backend, backend, asked.grammar)

    def _compile(self, name: str, backend: StructuredOutput, grammar: Grammar) -> CompiledGrammar:
        vocabulary = self.vocabulary()
        if not vocabulary.eos_ids:
            raise UnsupportedError(
                "the model has no end-of-sequence id: an output within a grammar could not end",
                expected="eos_token_id in the files of the model",
            )
        data = self.workers.compile(name, grammar)
        with blaming(backend, "loading a grammar"):
            return backend.load(data, vocabulary)
