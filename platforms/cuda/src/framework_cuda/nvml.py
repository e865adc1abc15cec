"""What NVML tells of driver and cards, through nvidia-ml-py; no CUDA context is made.

NVML counts cards by PCI bus, and knows nothing of CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A part of a card (MIG).  index: among those of its card.  uuid: "MIG-...".  gpu, compute:
    numbers of its GPU instance and compute instance."""

    index: int
    uuid: str
    gpu: int
    compute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """index: NVML's.  uuid: "GPU-...".  instances: its parts; None where MIG is off.  fault: why
    NVML could not tell more about it, or None."""

    index: int
    uuid: str = ""
    name: str = ""
    capability: tuple[int, int] = (0, 0)
    instances: tuple[Instance, ...] | None = None
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """version: of the driver ("570.86").  cuda: the newest CUDA that it can run, (12, 8)."""

    version: str
    cuda: tuple[int, int]


class NvmlFailure(Exception):
    """NVML cannot be used; the text says why."""


class Nvml:
    """Answers of NVML while it is open.  library: the module pynvml, or what behaves as it does."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def driver(self) -> Driver:
        library = self._library
        try:
            number = int(library.nvmlSystemGetCudaDriverVersion())
            version = str(library.nvmlSystemGetDriverVersion())
        except library.NVMLError as error:
            raise NvmlFailure(f"NVML does not tell the driver's version: {error}") from error
        return Driver(version=version, cuda=(number // 1000, number % 1000 // 10))

    def cards(self) -> tuple[Card, ...]:
        library = self._library
        try:
            count = int(library.nvmlDeviceGetCount())
        except library.NVMLError as error:
            raise NvmlFailure(f"NVML does not count the cards: {error}") from error
        return tuple(self._card(index) for index in range(count))

    def _card(self, index: int) -> Card:
        """A card that is lost or may not be looked at has a fault; the others can be used."""
        library = self._library
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
            return Card(
                index=index,
                uuid=str(library.nvmlDeviceGetUUID(handle)),
                name=str(library.nvmlDeviceGetName(handle)),
                capability=(int(major), int(minor)),
                instances=self._instances(handle),
            )
        except library.NVMLError as error:
            return Card(index=index, fault=str(error))

    def _instances(self, handle: Any) -> tuple[Instance, ...] | None:
        library = self._library
        try:
            current, _ = library.nvmlDeviceGetMigMode(handle)
        except library.NVMLError:  # cards without MIG, and drivers before it
            return None
        if not current:
            return None
        found = []
        for index in range(int(library.nvmlDeviceGetMaxMigDeviceCount(handle))):
            try:
                part = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except library.NVMLError:  # places that no instance takes
                continue
            found.append(
                Instance(
                    index=index,
                    uuid=str(library.nvmlDeviceGetUUID(part)),
                    gpu=int(library.nvmlDeviceGetGpuInstanceId(part)),
                    compute=int(library.nvmlDeviceGetComputeInstanceId(part)),
                )
            )
        return tuple(found)

    def memory(self, card: Card, instance: Instance | None) -> tuple[int, int]:
        """(free, total) bytes, whoever uses the rest.  Raises NvmlFailure where it is not told, as
        of chips that share the host's memory."""
        library = self._library
        try:
            handle = library.nvmlDeviceGetHandleByIndex(card.index)
            if instance is not None:
                handle = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance.index)
            memory = library.nvmlDeviceGetMemoryInfo(handle)
        except library.NVMLError as error:
            raise NvmlFailure(f"NVML does not tell the memory of {card.name}: {error}") from error
        return int(memory.free), int(memory.total)


@contextmanager
def opened(library: Any | None = None) -> Iterator[Nvml]:
    """NVML, closed at the end.  Raises NvmlFailure where there is no driver, or one that fails."""
    if library is None:
        try:
            import pynvml as library
        except ImportError as error:
            raise NvmlFailure("nvidia-ml-py is not installed: pip install nvidia-ml-py") from error
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise NvmlFailure(f"NVML cannot be opened: {error}") from error
    try:
        yield Nvml(library)
    finally:
        with suppress(library.NVMLError):
            library.nvmlShutdown()
