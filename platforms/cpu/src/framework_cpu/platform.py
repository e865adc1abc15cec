"""The plain processor as a platform.  torch is imported in `prepare` only."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from framework.contracts.platform import CacheBudget, Detection, DeviceFacts, Platform
from framework.errors import ConfigError
from framework_cpu.limits import cpu_quota, group_memory, host_memory, instruction_sets

CACHE_SHARE = 0.25
MOST_THREADS = 4096
RANKINGS: Mapping[str, tuple[str, ...]] = {
    "attention_backend": ("cpu_paged", "sdpa"),
    "kernel": ("cpu_packed", "fp16_packed", "fused_norm"),
}
_MIB = 1024 * 1024


class CpuOptions(BaseModel):
    """What --plugin-option platform.cpu.KEY=VALUE can set."""

    model_config = ConfigDict(extra="forbid")

    threads: int | None = Field(
        default=None,
        ge=1,
        le=MOST_THREADS,
        description="Computing threads; left out, affinity and quota decide.",
    )


@dataclass(frozen=True, slots=True)
class Threads:
    """A number of threads and the sentence that explains it."""

    count: int
    reason: str


def choose_threads(
    allowed: int, quota: float | None, environment: Mapping[str, str], option: int | None
) -> Threads:
    """Threads for `allowed` processors under `quota`.

    A quota is rounded down: more threads than granted time only makes them wait for each
    other in every barrier.  Raises ConfigError if OMP_NUM_THREADS is no such number.
    """
    if option is not None:
        return Threads(option, "asked for by option platform.cpu.threads")
    asked = environment.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked:
        if not re.fullmatch("0*[1-9][0-9]{0,3}", asked) or int(asked) > MOST_THREADS:
            raise ConfigError(
                "OMP_NUM_THREADS cannot be read",
                expected=f"an integer in [1, {MOST_THREADS}]",
                found=repr(asked),
                mend="correct or unset the variable",
            )
        return Threads(int(asked), "OMP_NUM_THREADS")
    granted = allowed if quota is None else min(allowed, max(1, int(quota)))
    limit = "no cgroup quota" if quota is None else f"cgroup quota of {quota:g}"
    return Threads(granted, f"{allowed} processors allowed, {limit}")


def _allowed_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class CpuPlatform(Platform):
    """See the package's README."""

    Options = CpuOptions

    def __init__(self, options: BaseModel | None = None, root: Path = Path("/")) -> None:
        super().__init__(options)
        self._root = root

    def detect(self) -> Detection:
        if importlib.util.find_spec("torch") is None:
            return Detection(
                state="broken", reasons=("torch is not installed; run `pip install torch`",)
            )
        return Detection(state="ready")

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            name="cpu",
            device="cpu",
            capability=None,
            dtypes=("float32", "bfloat16", "float16"),
            features=instruction_sets(self._root),
        )

    def prepare(self) -> tuple[str, ...]:
        import torch

        option = self.options.threads if isinstance(self.options, CpuOptions) else None
        threads = choose_threads(_allowed_processors(), cpu_quota(self._root), os.environ, option)
        torch.set_num_threads(threads.count)
        available, source = self.available_memory()
        return (
            f"cpu: {threads.count} threads ({threads.reason})",
            f"cpu: {available // _MIB} MiB of memory available ({source})",
        )

    def available_memory(self) -> tuple[int, str]:
        """(bytes, whose limit it is)."""
        host = host_memory(self._root)
        if host is None:
            import psutil

            host = int(psutil.virtual_memory().available)
        group = group_memory(self._root)
        if group is not None and group < host:
            return group, "limit of the cgroup"
        return host, "free on the machine"

    def cache_budget(self, needed: int, requested: int | None) -> CacheBudget:
        available, source = self.available_memory()
        if requested is not None:
            if requested > available:
                raise ConfigError(
                    "the cache that was asked for does not fit into memory",
                    expected=f"at most {available} bytes ({source})",
                    found=f"{requested} bytes",
                    mend="ask for less, or leave it out: then 25 % of what is available is used",
                )
            return CacheBudget(bytes=requested, reason=f"{requested // _MIB} MiB, as asked for")
        share = int(available * CACHE_SHARE)
        if needed <= share:
            return CacheBudget(bytes=needed, reason=f"{needed // _MIB} MiB, all that can be of use")
        return CacheBudget(
            bytes=share,
            reason=f"{share // _MIB} MiB, 25 % of {available // _MIB} MiB ({source})",
        )

    def ranking(self, kind: str) -> Sequence[str]:
        return RANKINGS.get(kind, ())
