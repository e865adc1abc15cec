"""Kind `kv_cache_spec`: what one layer keeps of the past, and who manages its pages.

A *spec* is a frozen value, one per layer.  Layers with equal specs form groups, which share
page tables.  A *cache manager type* decides, for the groups of one spec class, which pages a
request needs, may reuse and may give back.  A spec without a manager of its own is served by
that of its nearest base class: one that keeps too much is slow, but right.

    page table   | null | null | page | page | page |      a windowed group in mid-request
                 0      dropped       ^ still read   held
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational
from typing import ClassVar

from framework.contracts.base import Contract
from framework.errors import ConfigError
from framework.shown import shown

DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpec:
    """Base of all specs: frozen values, of which equal ones form groups.

    tokens_per_state: tokens that one stored state stands for: 1 for attention, 4 where every
    four tokens are compressed into one, 1/2 where each token leaves two.

    least: whole numbers among the fields of a class and of those it is made from, and the least
    that each may be.  Raises ConfigError for another value: a window of 0, say, in which a token
    would not see itself.
    """

    least: ClassVar[Mapping[str, int]] = {}
    tokens_per_state: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        for cls in type(self).__mro__:
            for name, least in cls.__dict__.get("least", {}).items():
                value = getattr(self, name)
                whole = isinstance(value, Integral) and not isinstance(value, bool)
                if not whole or value < least:
                    raise self._unfit(name, f"an integer >= {least}")
        if not (isinstance(self.tokens_per_state, Rational) and self.tokens_per_state > 0):
            raise self._unfit("tokens_per_state", "a fraction above 0")

    def _unfit(self, name: str, expected: str) -> ConfigError:
        return ConfigError(
            f"{name} of a {type(self).__name__} cannot be",
            expected=expected,
            found=shown(getattr(self, name)),
            mend="correct the model's configuration, or what makes a cache spec of it",
        )

    def state_bytes(self) -> int:
        """Bytes of one state of one layer."""
        raise NotImplementedError

    def page_bytes(self, page_tokens: int) -> int:
        """Bytes of one page of one layer, for a page of `page_tokens` tokens: twice as many for
        twice the tokens, or always those of one state where a page carries a state."""
        return math.ceil(page_tokens / self.tokens_per_state) * self.state_bytes()

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        """Most pages that a request of `length` tokens holds at one time, in a group, when at
        most `step_tokens` of them are planned and not yet computed.  Never less for more."""
        return -(-length // page_tokens)

    def reads(self, position: int) -> tuple[range, ...]:
        """Positions before `position` whose stored states its token reads, in any order; all of
        them unless a class says otherwise.  The engine itself does not ask: it is what the pages
        that are kept, dropped or hit are checked against."""
        return (range(position),)

    def max_bytes(self, length: int, page_tokens: int, step_tokens: int) -> int:
        """The same in bytes, for one layer."""
        return self.max_pages(length, page_tokens, step_tokens) * self.page_bytes(page_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttentionSpec(KVCacheSpec):
    """Keys and values of every token.

    dtype: name of the element type.  head_size_v may differ from head_size.
    """

    least: ClassVar[Mapping[str, int]] = {"num_kv_heads": 1, "head_size": 1, "head_size_v": 0}
    num_kv_heads: int
    head_size: int
    head_size_v: int
    dtype: str

    def state_bytes(self) -> int:
        return self.num_kv_heads * (self.head_size + self.head_size_v) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindowSpec(FullAttentionSpec):
    """A token at position p reads positions p - window + 1 .. p."""

    least: ClassVar[Mapping[str, int]] = {"window": 1}
    window: int

    def reads(self, position: int) -> tuple[range, ...]:
        return (range(max(position - self.window + 1, 0), position),)

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        # The window before a step and the step itself; one page at each end is partly used.
        span = min(length, self.window - 1 + step_tokens)
        return min(-(-length // page_tokens), -(-span // page_tokens) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkWindowSpec(SlidingWindowSpec):
    """A sliding window, and the first `sinks` tokens for ever."""

    least: ClassVar[Mapping[str, int]] = {"sinks": 0}
    sinks: int

    def reads(self, position: int) -> tuple[range, ...]:
        window = SlidingWindowSpec.reads(self, position)
        return (range(min(self.sinks, position)), *window)

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        # slots=True makes a new class, so super() without arguments would look up the old one.
        window = SlidingWindowSpec.max_pages(self, length, page_tokens, step_tokens)
        return min(-(-length // page_tokens), window + -(-self.sinks // page_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkedLocalSpec(FullAttentionSpec):
    """A token at position p reads from p // chunk * chunk on."""

    least: ClassVar[Mapping[str, int]] = {"chunk": 1}
    chunk: int

    def reads(self, position: int) -> tuple[range, ...]:
        return (range(position // self.chunk * self.chunk, position),)

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        span = min(length, self.chunk + step_tokens)
        return min(-(-length // page_tokens), -(-span // page_tokens) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MLASpec(KVCacheSpec):
    """Multi-head latent attention: one vector per token, from which K and V are made.

    latent_size: of the compressed part.  rope_size: of the part with positions.
    """

    least: ClassVar[Mapping[str, int]] = {"latent_size": 1, "rope_size": 0}
    latent_size: int
    rope_size: int
    dtype: str

    def state_bytes(self) -> int:
        return (self.latent_size + self.rope_size) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaSpec(KVCacheSpec):
    """One state for all tokens so far (state-space models, linear attention).

    shapes, dtypes: of the tensors that make up the state.  A page holds one state, that after
    its last token; the state of a request lies in its newest page.
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    def __post_init__(self) -> None:
        KVCacheSpec.__post_init__(self)
        least = min((size for shape in self.shapes for size in shape), default=1)
        if not self.shapes or len(self.shapes) != len(self.dtypes) or least < 1:
            expected = f"one or more, as many as dtypes ({len(self.dtypes)}), of sizes >= 1"
            raise self._unfit("shapes", expected)

    def state_bytes(self) -> int:
        sizes = zip(self.shapes, self.dtypes, strict=True)
        return sum(math.prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in sizes)

    def page_bytes(self, page_tokens: int) -> int:
        return self.state_bytes()

    def reads(self, position: int) -> tuple[range, ...]:
        return (range(max(position - 1, 0), position),)

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        # The page that the oldest step in flight is copied from, and those of all steps in
        # flight, each of which stays inside one page.
        return min(-(-length // page_tokens), -(-step_tokens // page_tokens) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttentionSpec(FullAttentionSpec):
    """Keys and values of what an encoder made; written once, never grows.

    encoder_length: most encoder tokens of a request.
    """

    least: ClassVar[Mapping[str, int]] = {"encoder_length": 1}
    encoder_length: int

    def reads(self, position: int) -> tuple[range, ...]:
        return ()

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        return -(-self.encoder_length // page_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderOnlySpec(KVCacheSpec):
    """Attention inside one step only: nothing is kept."""

    def state_bytes(self) -> int:
        return 0

    def reads(self, position: int) -> tuple[range, ...]:
        return ()

    def max_pages(self, length: int, page_tokens: int, step_tokens: int) -> int:
        return 0


class CacheManagerType(Contract):
    """How pages of one group are used.  Stateless: the KV manager owns pages and tables.

    A method that raises, or answers what cannot be, ends the request for which it was asked with
    an error that names the plugin; the facts below are read once, while the engine starts.

    Positions are tokens, page indices count from the start of the request.

    spec_class: the class of specs that it serves.  keeps_all: `droppable` is never asked.
    carries_state: each page continues the state of the one before it, so that a new page
    starts as a copy and steps end where pages end.  by_encoder: pages follow the encoder's
    tokens and not the request's; they take no part in the prefix cache.
    """

    kind: ClassVar[str] = "kv_cache_spec"
    spec_class: ClassVar[type[KVCacheSpec]]
    keeps_all: ClassVar[bool] = True
    carries_state: ClassVar[bool] = False
    by_encoder: ClassVar[bool] = False

    @abstractmethod
    def longest_hit(self, present: Sequence[bool], page_tokens: int, spec: KVCacheSpec) -> int:
        """Pages, counted from the start, that a request may take as computed.

        present[i]: the cache holds page i of the request.  The answer h, at most
        len(present), must be such that every page of [0, h) is present or named by `droppable`;
        the largest such h, or hits are lost.  Where one is present that was not, it is no less.
        """

    def droppable(self, computed: int, page_tokens: int, spec: KVCacheSpec) -> tuple[int, int]:
        """[start, stop): pages that no token from position `computed` on reads or writes.

        They are given back and stand in the table as the null page; named once, they are named
        for every larger `computed`.  stop is at most computed // page_tokens, also where
        there is none to name: the page of the next token is about to be written.
        """
        return 0, 0
