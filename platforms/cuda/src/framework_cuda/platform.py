"""NVIDIA GPUs as a platform.  torch is imported in `prepare` only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.platform import CacheBudget, Detection, DeviceFacts, Platform
from framework.errors import ConfigError
from framework_cuda.abilities import NEWEST, dtypes_of, features_of, ranking_of
from framework_cuda.detection import Found, Surroundings, find
from framework_cuda.devices import VARIABLE, Device
from framework_cuda.nvml import Card, NvmlFailure, opened
from framework_cuda.start import start
from framework_cuda.torch_build import torch_folder

ORDER = "CUDA_DEVICE_ORDER"
_MIB = 1024 * 1024


class CudaOptions(BaseModel):
    """What --plugin-option platform.cuda.KEY=VALUE can set."""

    model_config = ConfigDict(extra="forbid")

    device: int = Field(
        default=0, ge=0, description=f"Number of the device among those of {VARIABLE}."
    )
    memory_utilization: float = Field(
        default=0.9, gt=0, le=1, description="Part of its memory that may be in use with the cache."
    )
    forward_compatible: bool = Field(
        default=False, description="CUDA's compatibility package is there: take an older driver."
    )


class CudaPlatform(Platform):
    """See the package's README."""

    Options = CudaOptions

    def __init__(
        self,
        options: BaseModel | None = None,
        *,
        root: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
        library: Any | None = None,
        torch: Path | None = None,
        assumed: Device | None = None,
    ) -> None:
        """root, environment, library, torch: as in `Surroundings`; left out, those of here.
        assumed: a device that need not be there."""
        super().__init__(options)
        self._own = options if isinstance(options, CudaOptions) else CudaOptions()
        self._root, self._environment = root, environment
        self._library, self._torch = library, torch
        self._assumed = assumed

    def detect(self) -> Detection:
        found = self._find()
        return Detection(state=found.state, reasons=found.reasons)

    def assume(self, capability: tuple[int, int]) -> Platform | None:
        card = Card(index=0, name="assumed", capability=capability)
        return CudaPlatform(self._own, assumed=Device(logical=0, visible="0", card=card))

    def _find(self) -> Found:
        if self._assumed is not None:
            return Found(state="ready", device=self._assumed)
        around = Surroundings(
            root=self._root,
            environment=os.environ if self._environment is None else self._environment,
            library=self._library,
            torch=self._torch or torch_folder(),
        )
        return find(around, self._own.device, self._own.forward_compatible)

    def device(self) -> Device:
        """The one that is used.  Raises ConfigError where none is ready."""
        found = self._find()
        if found.device is None:
            raise ConfigError(
                f"CUDA is {found.state} here",
                expected="a device that is ready",
                found="; ".join(found.reasons),
                mend="mend that, or use --set platform=cpu",
            )
        return found.device

    def facts(self) -> DeviceFacts:
        device = self.device()
        capability = device.card.capability
        return DeviceFacts(
            name="cuda",
            device=f"cuda:{device.logical}",
            capability=capability,
            dtypes=dtypes_of(capability),
            features=features_of(capability),
        )

    def prepare(self) -> tuple[str, ...]:
        device = self.device()
        self._compare(device, self._start(device.logical))
        card = device.card
        part = "" if device.instance is None else f", instance {device.instance.uuid}"
        capability = ".".join(map(str, card.capability))
        lines = [
            f"cuda: {card.name}{part}, GPU {card.index} as cuda:{device.logical}, "
            f"capability {capability}"
        ]
        try:
            free, total = self._memory(device)
            lines.append(f"cuda: {free // _MIB} of {total // _MIB} MiB of memory free")
        except NvmlFailure as error:
            lines.append(f"cuda: {error}")
        return tuple(lines)

    def _start(self, logical: int) -> str | None:
        return start(logical)

    def _compare(self, device: Device, uuid: str | None) -> None:
        """CUDA may count cards by speed, NVML counts them by bus: then all that was found is of
        another card."""
        if uuid is None or device.uuid.partition("-")[2] == uuid:
            return
        raise ConfigError(
            "CUDA and the driver count the GPUs of this machine in different orders",
            expected=f"{device.uuid} as cuda:{device.logical}",
            found=uuid,
            mend=f"set {ORDER}=PCI_BUS_ID, or name UUIDs in {VARIABLE}",
        )

    def _memory(self, device: Device) -> tuple[int, int]:
        with opened(self._library) as nvml:
            return nvml.memory(device.card, device.instance)

    def cache_budget(self, needed: int, requested: int | None) -> CacheBudget:
        try:
            free, total = self._memory(self.device())
        except NvmlFailure as error:
            if requested is not None:
                return CacheBudget(bytes=requested, reason=f"as asked for; {error}")
            raise ConfigError(
                "it is not known how much memory is left for the cache",
                expected="free memory",
                found=str(error),
                mend="set kv_cache_memory_bytes",
            ) from error
        if requested is not None:
            if requested > free:
                raise ConfigError(
                    "the cache that was asked for does not fit into the GPU's memory",
                    expected=f"at most {free} bytes, which are free",
                    found=f"{requested} bytes",
                    mend="ask for less, or leave it out and set platform.cuda.memory_utilization",
                )
            return CacheBudget(bytes=requested, reason=f"{requested // _MIB} MiB, as asked for")
        part = self._own.memory_utilization
        share = max(0, free - int(total * (1 - part)))
        if needed <= share:
            return CacheBudget(bytes=needed, reason=f"{needed // _MIB} MiB, all that can be of use")
        return CacheBudget(
            bytes=share,
            reason=f"{share // _MIB} MiB: {free // _MIB} MiB are free, and {part:.0%} of "
            f"{total // _MIB} MiB may be in use",
        )

    def ranking(self, kind: str) -> Sequence[str]:
        """Of the device; where there is none, of a new one."""
        device = self._find().device
        return ranking_of(kind, device.card.capability if device else NEWEST)
