"""The participant: who waits for a grammar stands aside, who runs is masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel

from framework.contracts.masking import MaskingParticipant, Masks
from framework.contracts.participant import EngineContext
from framework.contracts.structured_output import CompiledGrammar
from framework.errors import IntegrityError
from framework_structured.asked import decode
from framework_structured.compiler import Compiler
from framework_structured.options import StructuredOptions
from framework_structured.progress import Progress
from framework_structured.reader import StructureReader

if TYPE_CHECKING:
    from framework.contracts.step import I32
    from framework.core.request import Request

NAME = "structured_outputs"


class StructuredOutputs(MaskingParticipant[CompiledGrammar]):
    """Attends the requests that ask for structured output."""

    Options = StructuredOptions
    waiting = "its grammar is being compiled"
    unusable = "its grammar cannot be used"
    examples: ClassVar[Sequence[Mapping[str, Any]]] = (
        {"structured_outputs": {"choice": ["yes", "no", "perhaps"]}},
        {"structured_outputs": {"regex": "[a-z]{1,20}"}},
    )

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        chosen = options if isinstance(options, StructuredOptions) else StructuredOptions()
        self._chosen = chosen
        self._compiler: Compiler | None = None
        self._ends: Masks | None = None

    def front_half(self, context: EngineContext) -> StructureReader:
        return StructureReader(context, self._compiling(context).workers)

    def start(self, context: EngineContext) -> None:
        super().start(context)
        self._compiling(context)

    def close(self) -> None:
        if self._compiler is not None:
            self._compiler.close()

    def prepare(self, request: Request) -> Future[CompiledGrammar]:
        return self._started().ready(decode(request.input.extras[NAME]))

    def begin(self, request: Request, prompt: I32, made: CompiledGrammar) -> Progress:
        reasoning = self._started().reasoning()
        thinking = None if reasoning is None else reasoning.begin(prompt.tolist())
        return Progress(made.matcher(), self._only_ends(), thinking)

    def _compiling(self, context: EngineContext) -> Compiler:
        """One for both halves, where they are one instance."""
        if self._compiler is None:
            self._compiler = Compiler(context, self._chosen)
        return self._compiler

    def _started(self) -> Compiler:
        if self._compiler is None:
            raise IntegrityError("the participant was never started")
        return self._compiler

    def _only_ends(self) -> Masks:
        """The bitmask that allows the ends of a sequence and nothing else."""
        if self._ends is None:
            vocabulary = self._started().vocabulary()
            self._ends = np.zeros(vocabulary.words, np.uint32)
            for token in vocabulary.eos_ids:
                self._ends[token // 32] |= np.uint32(1 << token % 32)
        return self._ends
