"""An answer as blocks, one behind the other: reasoning, text, calls of tools.

APIs that stream typed events open a block, send its pieces and close it; the whole answer is all
blocks once they are closed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from framework.contracts.tool_parser import CallArguments, CallBegins, Text
from framework_http.openai.reading import Piece, Reasoning

Kind = Literal["reasoning", "text", "call"]
Change = Literal["open", "more", "close"]


@dataclass(slots=True)
class Block:
    """index: of the block in the answer, from 0 on.  text: so far; of a call, its arguments as
    JSON.  name: of the tool.  key: unlike that of any other block."""

    index: int
    kind: Kind
    name: str = ""
    text: str = ""
    key: str = field(default_factory=lambda: uuid.uuid4().hex[:24])


class Blocks:
    """Turns pieces into changes of blocks.  done: all that were opened, in order."""

    def __init__(self) -> None:
        self.done: list[Block] = []
        self._open: Block | None = None
        # White space before a block of text: most often it only stands between two other blocks.
        self._space = ""

    def take(self, pieces: Iterable[Piece]) -> Iterator[tuple[Change, Block, str]]:
        """(what happens, to which block, the piece of text that it is about)."""
        for piece in pieces:
            match piece:
                case Reasoning():
                    yield from self._add("reasoning", piece.text)
                case Text():
                    yield from self._text(piece.text)
                case CallBegins():
                    yield from self._begin("call", piece.name)
                case CallArguments():
                    yield from self._add("call", piece.text)

    def finish(self) -> Iterator[tuple[Change, Block, str]]:
        """The answer has ended.  One without any block gets an empty block of text."""
        if not self.done:
            yield from self._begin("text")
            yield from self._add("text", self._space)
        yield from self._close()

    def _text(self, text: str) -> Iterator[tuple[Change, Block, str]]:
        if self._open is None or self._open.kind != "text":
            text = self._space + text
            self._space = "" if text.strip() else text
            if self._space:
                return
        yield from self._add("text", text)

    def _add(self, kind: Kind, text: str) -> Iterator[tuple[Change, Block, str]]:
        if self._open is None or self._open.kind != kind:
            yield from self._begin(kind)
        if text and self._open is not None:
            self._open.text += text
            yield "more", self._open, text

    def _begin(self, kind: Kind, name: str = "") -> Iterator[tuple[Change, Block, str]]:
        yield from self._close()
        self._open = Block(len(self.done), kind, name)
        self.done.append(self._open)
        if kind != "text":
            self._space = ""
        yield "open", self._open, ""

    def _close(self) -> Iterator[tuple[Change, Block, str]]:
        if self._open is not None:
            yield "close", self._open, ""
            self._open = None
