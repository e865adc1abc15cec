"""Kind `structured_output`: keeps an output within a grammar, token by token.

A request asks for one of the `STRUCTURES`.  Candidates answer what they cover (`answer`), and the
first that can serve `check`s the grammar before the request is queued.  Then `compile` makes it
ready, in a worker process that is killed if that takes too long, and `load` takes it over in the
process of the engine core, where each request gets a `Matcher` of its own.

A grammar speaks of bytes: a token is allowed if the bytes of the output, with those of the token,
can still become what the grammar describes.  An end-of-sequence id is allowed exactly where the
output is complete.  Tokens without bytes are never allowed, and with them all special ones.

JSON, as its structure says or inside tags, has bounded white space: at most `WHITE_SPACE` such
characters in a row outside of strings.  A model that has nothing to say could else go on for ever.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from framework.contracts.base import (
    Answer,
    Contract,
    Query,
    Rejected,
    Rejection,
    Supported,
    versioned,
)

if TYPE_CHECKING:
    from framework.contracts.tokenizer import Tokenizer

T = TypeVar("T")
STRUCTURES = ("json", "json_object", "regex", "choice", "grammar", "structural_tag")
WHITE_SPACE = 16
"""Most characters of white space in a row between the parts of a JSON text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """structure: one of STRUCTURES.  text: of json, the schema as JSON text; of json_object,
    nothing; of regex, the expression, which the whole output matches; of choice, a JSON list of
    texts; of grammar, its source, with the rule `root` (ebnf) or `start` (lark); of structural_tag,
    a JSON text."""

    structure: str
    text: str

    @property
    def key(self) -> str:
        """Equal for equal grammars only."""
        return hashlib.sha256(f"{self.structure}\0{self.text}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class StructureQuery(Query):
    """What a grammar makes use of.

    structure: one of STRUCTURES.  dialect: of a grammar "ebnf" (rules are written with ::=) or
    "lark"; of a structural tag "tags" (a list of tags with triggers) or "format".  keywords: of
    the JSON schemas in it, those that decide what is valid; "$ref:remote" and "$ref:recursive"
    for references to another document, and back to where they stand.  formats: values of the
    keyword "format".
    """

    structure: str = versioned(since="1.0")
    dialect: str | None = versioned(since="1.0", neutral=None)
    keywords: frozenset[str] = versioned(since="1.0", neutral=frozenset())
    formats: frozenset[str] = versioned(since="1.0", neutral=frozenset())

    def __str__(self) -> str:
        dialect = f" ({self.dialect})" if self.dialect else ""
        parts = [self.structure + dialect, *sorted(self.keywords)]
        return " ".join([*parts, *(f"format:{name}" for name in sorted(self.formats))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What a backend serves; the fields are those of `StructureQuery`.  What is not named here is
    refused: a keyword that is ignored would let outputs through that are not valid."""

    structures: frozenset[str]
    dialects: frozenset[str] = frozenset()
    keywords: frozenset[str] = frozenset()
    formats: frozenset[str] = frozenset()

    def answer(self, query: StructureQuery) -> Answer:
        """Supported, or a reason for each thing that is not covered."""
        if query.structure not in self.structures:
            return Rejected((_lacks("structure", query.structure, self.structures),))
        asked = [
            ("dialect", {query.dialect} - {None}, self.dialects),
            ("keywords", query.keywords, self.keywords),
            ("formats", query.formats, self.formats),
        ]
        reasons = [
            _lacks(name, one, known)
            for name, found, known in asked
            for one in sorted(str(one) for one in found - known)
        ]
        return Rejected(tuple(reasons)) if reasons else Supported()


def _lacks(name: str, found: str, known: frozenset[str]) -> Rejection:
    return Rejection(
        code=name,
        field=name,
        found=found,
        needed=f"one of {', '.join(sorted(known)) or 'none'}",
        remedy=f"leave {found!r} out, or choose another backend",
    )


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """What a backend knows of the tokenizer.

    tokens: bytes by id, as many as the logits are wide; b"" for ids that stand for none, among
    them all special ones.  eos_ids: ids that end an output, at least one.
    """

    tokens: tuple[bytes, ...]
    eos_ids: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def words(self) -> int:
        """32-bit words of a bitmask."""
        return -(-len(self.tokens) // 32)

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal vocabularies only."""
        digest = hashlib.sha256(repr(self.eos_ids).encode())
        for token in self.tokens:
            digest.update(len(token).to_bytes(4, "little") + token)
        return digest.hexdigest()


def vocabulary_of(tokenizer: Tokenizer, vocab_size: int, eos_ids: Sequence[int]) -> Vocabulary:
    """Of a tokenizer, for logits of `vocab_size` tokens."""
    hidden = tokenizer.special_ids.union(eos_ids)
    most = min(tokenizer.vocab_size, vocab_size)
    tokens = [b"" if t in hidden else tokenizer.token_bytes(t) for t in range(most)]
    ends = tuple(sorted({token for token in eos_ids if 0 <= token < vocab_size}))
    return Vocabulary(tokens=(*tokens, *[b""] * (vocab_size - most)), eos_ids=ends)


class OfVocabulary(Generic[T]):
    """What a library makes of a vocabulary, which takes a moment: it is made once for each."""

    def __init__(self, make: Callable[[Vocabulary], T]) -> None:
        self._make = make
        self._made: dict[str, T] = {}

    def __call__(self, vocabulary: Vocabulary) -> T:
        key = vocabulary.fingerprint
        if key not in self._made:
            self._made[key] = self._make(vocabulary)
        return self._made[key]


class Matcher(Protocol):
    """Where one output stands in its grammar.  Called from one thread."""

    def accept(self, token: int) -> bool:
        """The output goes on with `token`.  False if the grammar does not allow it; then nothing
        has changed."""
        ...

    def rollback(self, tokens: int) -> None:
        """Take the last `tokens` that were accepted back, an end of sequence included."""
        ...

    def fill_bitmask(self, row: npt.NDArray[np.uint32]) -> None:
        """Set exactly the bits of the tokens that `accept` would take: uint32 [words], token t is
        bit t % 32 of word t // 32.  Bits beyond the vocabulary are 0."""
        ...

    def is_terminated(self) -> bool:
        """An end of sequence was accepted: nothing more is allowed."""
        ...


class CompiledGrammar(Protocol):
    """A grammar that is ready."""

    def matcher(self) -> Matcher:
        """A new one, at the start of an output.  Takes no longer than a step may wait."""
        ...


class StructuredOutput(Contract):
    """One library of grammars.

    coverage: what it serves.  libraries: modules that it imports when it is first used; a worker
    imports them before a deadline begins.

    `check` and `compile` are called in a worker process, one at a time; it may be killed in any of
    them.  `load` is called in the process of the engine core, from a thread of its own.
    """

    kind: ClassVar[str] = "structured_output"
    coverage: ClassVar[Coverage]
    libraries: ClassVar[tuple[str, ...]] = ()

    def answer(self, query: StructureQuery) -> Answer:
        """From what is declared alone: nothing is parsed, nothing imported."""
        return self.coverage.answer(query)

    @abstractmethod
    def check(self, grammar: Grammar) -> None:
        """Raises InputError for what is no valid grammar, UnsupportedError for a valid one that
        cannot be served; what passes here can be compiled, but for its size."""

    @abstractmethod
    def compile(self, grammar: Grammar, vocabulary: Vocabulary) -> bytes:
        """The grammar in a form that `load` takes quickly.  Raises as `check` does."""

    @abstractmethod
    def load(self, compiled: bytes, vocabulary: Vocabulary) -> CompiledGrammar:
        """What `compile` made, in any process with this backend and an equal vocabulary."""


def default_query() -> StructureQuery:
    """What `framework explain structured_output` asks: the schemas of most tools."""
    usual = ("type", "properties", "required", "additionalProperties", "items", "enum", "anyOf")
    return StructureQuery(structure="json", keywords=frozenset((*usual, "$ref")))
