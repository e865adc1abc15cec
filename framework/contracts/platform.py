"""Kind `platform`: the hardware a runner runs on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from framework.contracts.base import Contract
from framework.contracts.graphs import GraphDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """absent: no such hardware.  broken: there, but unusable, with reasons and mends.
    ready: usable."""

    state: Literal["absent", "broken", "ready"]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """name: of the platform.  device: as torch writes it ("cpu").  capability: (major, minor)
    or None.  dtypes: element types it computes in, best first.  features: what kernels may make
    use of; on a processor the instruction sets, as Linux writes them ("avx2")."""

    name: str
    device: str
    capability: tuple[int, int] | None
    dtypes: tuple[str, ...]
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBudget:
    """bytes: for the cache.  reason: one sentence that says how it was chosen."""

    bytes: int
    reason: str


class Platform(Contract):
    """One kind of hardware.  The first that is ready is used, by rank and then by name, unless
    the operator named one; one that is broken stops the start unless another was named."""

    kind: ClassVar[str] = "platform"

    @abstractmethod
    def detect(self) -> Detection:
        """Look for the hardware.  Makes no device context, imports nothing heavy, is quick."""

    @abstractmethod
    def facts(self) -> DeviceFacts:
        """Facts of a ready platform."""

    @abstractmethod
    def prepare(self) -> tuple[str, ...]:
        """In the worker, before a model loads: threads and the like.  Returns start-up lines, one
        of which tells the number of threads if it sets that.

        Other defaults of the process stay: element type and device of new tensors, gradients,
        random numbers, and whether algorithms are deterministic.
        """

    @abstractmethod
    def cache_budget(self, needed: int, requested: int | None) -> CacheBudget:
        """Bytes for the KV cache, asked after the weights are loaded.

        needed: bytes beyond which more is of no use.  requested: the operator's choice or
        None.  Raises ConfigError when `requested` cannot be given.
        """

    def available_memory(self) -> tuple[int, str] | None:
        """(bytes of the host that this process may still take, whose limit that is), or None if
        it is not known."""
        return None

    def graphs(self) -> GraphDevice | None:
        """What records work of its device as graphs, asked after `prepare`, or None: nothing can.
        Each call may give another, whose graphs share no memory with those of the ones before."""
        return None

    def assume(self, capability: tuple[int, int]) -> Platform | None:
        """This platform as if it had a device of that capability, which need not be there: only
        `facts` and `ranking` of it are asked.  None: its devices have no capabilities."""
        return None

    def ranking(self, kind: str) -> Sequence[str]:
        """Names of candidates of `kind`, best first.  Unknown names are ignored."""
        return ()
