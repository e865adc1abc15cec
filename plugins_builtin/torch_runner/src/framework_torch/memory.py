"""Memory: whether made-up weights and a cache fit into it, and giving it back."""

from __future__ import annotations

import ctypes
import gc

from framework.contracts.base import Supported
from framework.contracts.model import ModelSupported
from framework.contracts.platform import Platform
from framework.contracts.step import CachePlan
from framework.errors import ConfigError, ModelError
from framework.plugins.blame import blaming

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def refuse_too_large(name: str, answer: Supported, dtype: str, platform: Platform) -> None:
    """ModelError if dummy weights of the model cannot fit.

    Files are not looked at: their tensors stay in the map, which memory need not hold.
    """
    parameters = answer.parameters if isinstance(answer, ModelSupported) else None
    if parameters is None:
        return
    with blaming(platform, "telling the available memory"):
        available = platform.available_memory()
    needed = parameters * BYTES[dtype]
    if available is None or needed <= available[0]:
        return
    raise ModelError(
        f"dummy weights of {name!r} do not fit into memory",
        expected=f"at most {available[0]} bytes ({available[1]})",
        found=f"{needed} bytes: {parameters} numbers in {dtype}",
        mend="correct the sizes in config.json, choose a narrower dtype, or a larger machine",
    )


def refuse_large_cache(plan: CachePlan, platform: Platform) -> None:
    """ConfigError if a cache on the host cannot fit.

    The system promises more than there is; a cache that is used beyond that ends the process.
    """
    with blaming(platform, "telling the available memory"):
        available = platform.available_memory()
    needed = plan.num_pages * plan.page_bytes
    if available is None or needed <= available[0]:
        return
    raise ConfigError(
        "the cache that was asked for does not fit into memory",
        expected=f"at most {available[0] // plan.page_bytes} pages of {plan.page_bytes} bytes "
        f"({available[1]})",
        found=f"{plan.num_pages} pages",
        mend="lower num_pages, or leave it out: then the platform chooses",
    )


def return_memory(device: str) -> None:
    """What nobody refers to any more goes back to the system, or to the device."""
    gc.collect()
    if device == "cpu":
        trim()
    else:
        import torch

        torch.accelerator.empty_cache()


def trim() -> None:
    """Give pages back that the C library keeps for later; nothing where it has no such call."""
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if give_back is not None:
        give_back(0)
