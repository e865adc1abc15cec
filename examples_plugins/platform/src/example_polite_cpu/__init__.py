"""A platform: the CPU of a machine that others use, too.

It is used where the operator names it, for example `LLM(platform="polite_cpu")`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from pydantic import BaseModel, Field

from framework.contracts.platform import CacheBudget, Detection, DeviceFacts, Platform
from framework.errors import ConfigError

MIB = 1 << 20


class Options(BaseModel, extra="forbid"):
    """What --plugin-option platform.polite_cpu.KEY=VALUE can set."""

    threads: int = Field(default=1, ge=1, description="Computing threads.")
    cache_mib: int = Field(default=256, ge=1, description="Most that the KV cache gets, in MiB.")


class PoliteCpu(Platform):
    """Few threads, and a cache of a fixed size."""

    Options = Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._own = options or Options()

    def detect(self) -> Detection:
        if importlib.util.find_spec("torch") is None:
            return Detection(state="broken", reasons=("torch is not installed: pip install torch",))
        return Detection(state="ready")

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            name="polite_cpu", device="cpu", capability=None, dtypes=("float32", "bfloat16")
        )

    def prepare(self) -> tuple[str, ...]:
        import torch

        torch.set_num_threads(self._own.threads)
        return (f"polite_cpu: {self._own.threads} threads, as option threads says",)

    def cache_budget(self, needed: int, requested: int | None) -> CacheBudget:
        most = self._own.cache_mib * MIB
        if requested is None:
            return CacheBudget(
                bytes=min(needed, most), reason=f"at most {self._own.cache_mib} MiB (cache_mib)"
            )
        if requested > most:
            raise ConfigError(
                "the cache that was asked for is more than the platform gives",
                expected=f"at most {most} bytes",
                found=requested,
                mend="raise --plugin-option platform.polite_cpu.cache_mib, or ask for less",
            )
        return CacheBudget(bytes=requested, reason="as asked for")

    def ranking(self, kind: str) -> Sequence[str]:
        return ("cpu_paged", "sdpa") if kind == "attention_backend" else ()
