"""Whether CUDA can be used here, and if not, why and what mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from framework_cuda.devices import VARIABLE, Device, Visible, visible_devices
from framework_cuda.nvml import Driver, NvmlFailure, opened
from framework_cuda.torch_build import cuda_of

LEAST_CAPABILITY = (7, 0)
OTHERWISE = f"or use another platform: --set platform=cpu, or {VARIABLE}= in the environment"
NVIDIA, DISPLAY = "0x10de", "0x03"
"""PCI: the vendor, and how the class of what computes or draws begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a platform answers, and the device that it will use, where it is ready."""

    state: Literal["absent", "broken", "ready"]
    reasons: tuple[str, ...] = ()
    device: Device | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What detection looks at.  root: of the file system.  library: pynvml, or what behaves as it
    does; None imports it.  torch: its folder, or None where it is not installed."""

    root: Path
    environment: Mapping[str, str]
    library: Any | None
    torch: Path | None


def card_on_the_bus(root: Path) -> bool:
    """Whether a card of NVIDIA is on the PCI bus, with or without a driver."""
    for folder in (root / "sys/bus/pci/devices").glob("*"):
        try:
            vendor = (folder / "vendor").read_text().strip()
            kind = (folder / "class").read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
        if vendor == NVIDIA and kind.startswith(DISPLAY):
            return True
    return False


def find(around: Surroundings, wanted: int, forward_compatible: bool) -> Found:
    """wanted: logical number of the device.  forward_compatible: CUDA's compatibility package is
    there, with which an older driver will do."""
    try:
        with opened(around.library) as nvml:
            cards = nvml.cards()
            driver = nvml.driver() if cards else None
    except NvmlFailure as error:
        return _no_driver(around, str(error))
    if driver is None:
        return Found(state="absent", reasons=("the driver sees no NVIDIA GPU",))
    seen = visible_devices(cards, around.environment)
    if seen.hidden:
        return Found(state="absent", reasons=(f"{VARIABLE} hides all {len(cards)} GPUs",))
    device = seen.devices[wanted] if wanted < len(seen.devices) else None
    reasons = [
        *_torch_reasons(around.torch, driver, forward_compatible),
        *(_device_reasons(device) if device else [_no_device(seen, wanted)]),
    ]
    if reasons:
        return Found(state="broken", reasons=tuple(reasons))
    return Found(state="ready", device=device)


def _no_driver(around: Surroundings, why: str) -> Found:
    if not card_on_the_bus(around.root):
        return Found(state="absent", reasons=(f"no NVIDIA GPU was found ({why})",))
    if around.environment.get(VARIABLE, "0").strip() in ("", "-1", "NoDevFiles"):
        return Found(state="absent", reasons=(f"{VARIABLE} hides all GPUs",))
    mend = "install NVIDIA's driver, or start the container with --gpus all"
    return Found(
        state="broken",
        reasons=(f"an NVIDIA GPU is there without a driver ({why}); {mend}, {OTHERWISE}",),
    )


def _torch_reasons(torch: Path | None, driver: Driver, forward_compatible: bool) -> list[str]:
    if torch is None:
        return [f"torch is not installed; run `pip install torch`, {OTHERWISE}"]
    built = cuda_of(torch)
    if built is None:
        mend = "install the build for CUDA, see https://pytorch.org/get-started"
        return [f"torch is installed without CUDA; {mend}, {OTHERWISE}"]
    # Minor versions are compatible with each other, major ones are not.
    if int(built.partition(".")[0]) > driver.cuda[0] and not forward_compatible:
        able = ".".join(map(str, driver.cuda))
        return [
            f"the driver {driver.version} is too old: it runs CUDA {able}, and torch was built for "
            f"CUDA {built}; install a newer driver or torch for CUDA {driver.cuda[0]}, or, with "
            "CUDA's compatibility package, set option platform.cuda.forward_compatible, "
            f"{OTHERWISE}"
        ]
    return []


def _no_device(seen: Visible, wanted: int) -> str:
    there = f"{len(seen.devices)} visible" + (
        f": in {VARIABLE}, {seen.ended}" if seen.ended else ""
    )
    if wanted:
        return f"option platform.cuda.device is {wanted}, and there are {there}; correct either"
    return f"no GPU can be used, {there}; correct {VARIABLE}, {OTHERWISE}"


def _device_reasons(device: Device) -> list[str]:
    card = device.card
    if card.fault is not None:
        mend = "look at it with nvidia-smi, leave it out of " + VARIABLE
        return [f"GPU {card.index} cannot be used: {card.fault}; {mend}, {OTHERWISE}"]
    if card.capability < LEAST_CAPABILITY:
        least = ".".join(map(str, LEAST_CAPABILITY))
        found = ".".join(map(str, card.capability))
        return [
            f"GPU {card.index}, {card.name}, has compute capability {found}, less than {least}; "
            f"leave it out of {VARIABLE}, {OTHERWISE}"
        ]
    return []
