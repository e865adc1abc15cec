"""pynvml of a machine that is not there: functions with the names and errors of the library."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

GIB = 1024**3


class NVMLError(Exception):
    """What every function may raise."""


@dataclass
class FakeCard:
    """mig: (UUID, GPU instance, compute instance) of each part, None for an empty place; None where
    MIG is off.  lost: whatever is asked of it fails."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    capability: tuple[int, int] = (9, 0)
    free: int = 70 * GIB
    total: int = 80 * GIB
    mig: list[tuple[str, int, int] | None] | None = None
    lost: bool = False
    tells_memory: bool = True


@dataclass
class FakeNvml:
    """failure: why it cannot be opened.  A handle is (card,) or (card, part)."""

    cards: list[FakeCard] = field(default_factory=list)
    cuda: int = 12080
    failure: str | None = None
    opened: int = 0
    NVMLError = NVMLError

    def nvmlInit(self) -> None:
        if self.failure is not None:
            raise NVMLError(self.failure)
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1
        assert self.opened >= 0, "shut down more often than opened"

    def _asked(self) -> None:
        if not self.opened:
            raise NVMLError("Uninitialized")

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        self._asked()
        return self.cuda

    def nvmlSystemGetDriverVersion(self) -> str:
        self._asked()
        return "570.86.15"

    def nvmlDeviceGetCount(self) -> int:
        self._asked()
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[FakeCard]:
        self._asked()
        if self.cards[index].lost:
            raise NVMLError("GPU is lost")
        return (self.cards[index],)

    def nvmlDeviceGetMigMode(self, handle: tuple[FakeCard]) -> list[int]:
        self._asked()
        if handle[0].capability < (8, 0):
            raise NVMLError("Not Supported")
        on = int(handle[0].mig is not None)
        return [on, on]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: tuple[FakeCard]) -> int:
        self._asked()
        return len(handle[0].mig or ())

    def nvmlDeviceGetMigDeviceHandleByIndex(
        self, handle: tuple[FakeCard], index: int
    ) -> tuple[FakeCard, tuple[str, int, int]]:
        self._asked()
        part = (handle[0].mig or [])[index]
        if part is None:
            raise NVMLError("Not Found")
        return handle[0], part

    def nvmlDeviceGetUUID(self, handle: tuple) -> str:
        self._asked()
        return handle[1][0] if len(handle) == 2 else handle[0].uuid

    def nvmlDeviceGetGpuInstanceId(self, handle: tuple) -> int:
        self._asked()
        return handle[1][1]

    def nvmlDeviceGetComputeInstanceId(self, handle: tuple) -> int:
        self._asked()
        return handle[1][2]

    def nvmlDeviceGetName(self, handle: tuple) -> str:
        self._asked()
        return handle[0].name

    def nvmlDeviceGetCudaComputeCapability(self, handle: tuple) -> tuple[int, int]:
        self._asked()
        if len(handle) == 2:
            raise NVMLError("Invalid Argument")
        return handle[0].capability

    def nvmlDeviceGetMemoryInfo(self, handle: tuple) -> SimpleNamespace:
        self._asked()
        card = handle[0]
        if not card.tells_memory:
            raise NVMLError("Not Supported")
        parts = 8 if len(handle) == 2 else 1
        return SimpleNamespace(free=card.free // parts, total=card.total // parts)
