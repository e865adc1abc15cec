"""What the operating system lets this process have: processors, what they can do, and memory.

Everything is read below a `root`, so that tests can lay out a machine of their own.  A limit
of a control group holds for all its descendants, so every ancestor counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# cgroup v1 writes "no limit" as the largest multiple of the page size in an int64.
_UNLIMITED_V1 = 2**60
# How the names of instruction sets for computing begin, on x86 and on Arm.
_COMPUTING = ("avx", "amx", "fma", "f16c", "asimd", "sve", "bf16", "i8mm")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted control group tree.  root: the group that lies at `point`."""

    point: Path
    root: str
    version: int
    controllers: frozenset[str]


def _read(path: Path) -> str | None:
    """Content of a small file; None when it is absent or may not be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(path: Path) -> int | None:
    """An integer in a file; None for "max", nonsense or no file."""
    text = _read(path)
    if text is None:
        return None
    try:
        return int(text.split()[0])
    except (ValueError, IndexError):
        return None


def _mounts(root: Path) -> Iterator[Mount]:
    for line in (_read(root / "proc/self/mountinfo") or "").splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        yield Mount(
            point=root / fields[4].lstrip("/"),
            root=fields[3],
            version=2 if kind[0] == "cgroup2" else 1,
            controllers=frozenset(kind[2].split(",")),
        )


def _own_path(root: Path, version: int, controller: str) -> str | None:
    """Path of this process' group in the tree of a controller."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if version == 2 and number == "0" and not names:
            return path
        if version == 1 and controller in names.split(","):
            return path
    return None


def groups(root: Path, controller: str) -> Iterator[tuple[Path, int]]:
    """(folder, cgroup version) of this process' group and all its visible ancestors."""
    for mount in _mounts(root):
        if mount.version == 1 and controller not in mount.controllers:
            continue
        path = _own_path(root, mount.version, controller)
        if path is None:
            continue
        # In a container the path may be the host's; then its own group lies at the mount.
        below = PurePosixPath(path)
        inside = below.is_relative_to(mount.root)
        parts = below.relative_to(mount.root).parts if inside else ()
        for depth in range(len(parts), -1, -1):
            folder = mount.point.joinpath(*parts[:depth])
            if folder.is_dir():
                yield folder, mount.version


def cpu_quota(root: Path) -> float | None:
    """Processors' worth of time that the tightest group grants; None without a quota."""
    quotas = []
    for folder, version in groups(root, "cpu"):
        if version == 2:
            words = (_read(folder / "cpu.max") or "").split()
            if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
                quotas.append(int(words[0]) / int(words[1]))
        else:
            quota = _number(folder / "cpu.cfs_quota_us")
            period = _number(folder / "cpu.cfs_period_us")
            if quota is not None and quota > 0 and period:
                quotas.append(quota / period)
    return min(quotas, default=None)


def _statistic(folder: Path, key: str) -> int:
    for line in (_read(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and value.isdigit():
            return int(value)
    return 0


def group_memory(root: Path) -> int | None:
    """Bytes still to be had under the tightest memory limit; None without a limit.

    Page cache that the kernel would give back does not count as used.
    """
    left = []
    for folder, version in groups(root, "memory"):
        limit_name, used_name, stale_name = (
            ("memory.max", "memory.current", "inactive_file")
            if version == 2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        limit = _number(folder / limit_name)
        if limit is None or limit >= _UNLIMITED_V1:
            continue
        used = (_number(folder / used_name) or 0) - _statistic(folder, stale_name)
        left.append(max(0, limit - max(0, used)))
    return min(left, default=None)


def host_memory(root: Path) -> int | None:
    """Bytes available on the machine by /proc/meminfo; None where there is no such file."""
    for line in (_read(root / "proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if name == "MemAvailable" and words and words[0].isdigit():
            return int(words[0]) * 1024
    return None


def instruction_sets(root: Path) -> frozenset[str]:
    """Instruction sets for computing that the first processor of /proc/cpuinfo has; empty where
    there is no such file."""
    for line in (_read(root / "proc/cpuinfo") or "").splitlines():
        name, _, rest = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(word for word in rest.split() if word.startswith(_COMPUTING))
    return frozenset()
