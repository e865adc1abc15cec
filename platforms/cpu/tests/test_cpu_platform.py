"""The CPU platform on machines laid out in a folder."""

from pathlib import Path

import pytest

from framework.errors import ConfigError
from framework_cpu.limits import cpu_quota, group_memory, host_memory
from framework_cpu.platform import CpuOptions, CpuPlatform, choose_threads

GIB = 1024**3
V2 = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


def lay_out(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def machine_v2(root: Path, **extra: str) -> Path:
    files = {
        "proc/self/mountinfo": V2,
        "proc/self/cgroup": "0::/pod/app\n",
        "proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {16 * GIB // 1024} kB\n",
        "sys/fs/cgroup/pod/app/cpu.max": "max 100000",
        "sys/fs/cgroup/pod/cpu.max": "250000 100000",
        "sys/fs/cgroup/pod/app/memory.max": "max",
        "sys/fs/cgroup/pod/memory.max": str(8 * GIB),
        "sys/fs/cgroup/pod/memory.current": str(5 * GIB),
        "sys/fs/cgroup/pod/memory.stat": f"anon 7\ninactive_file {GIB}\n",
    }
    return lay_out(root, {**files, **extra})


def test_a_v2_quota_and_limit_of_an_ancestor_hold(tmp_path: Path) -> None:
    machine_v2(tmp_path)
    assert cpu_quota(tmp_path) == 2.5
    assert group_memory(tmp_path) == 4 * GIB
    assert host_memory(tmp_path) == 16 * GIB


def test_v1_controllers_are_read_from_their_own_trees(tmp_path: Path) -> None:
    lay_out(
        tmp_path,
        {
            "proc/self/mountinfo": V1,
            "proc/self/cgroup": "4:memory:/docker/x/y\n1:cpu,cpuacct:/a\n0::/\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "150000",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "50000",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/memory/y/memory.limit_in_bytes": str(2 * GIB),
            "sys/fs/cgroup/memory/y/memory.usage_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )
    assert cpu_quota(tmp_path) == 3.0
    assert group_memory(tmp_path) == GIB


def test_a_group_path_of_the_host_falls_back_to_the_mounted_group(tmp_path: Path) -> None:
    lay_out(
        tmp_path,
        {
            "proc/self/mountinfo": V1.replace("/docker/x", "/docker/other"),
            "proc/self/cgroup": "4:memory:/host/path\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "0",
        },
    )
    assert group_memory(tmp_path) == GIB


@pytest.mark.parametrize("text", ["", "max", "abc def", "1 0", "1"])
def test_a_quota_that_cannot_be_read_is_no_quota(tmp_path: Path, text: str) -> None:
    machine_v2(tmp_path, **{"sys/fs/cgroup/pod/cpu.max": text})
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("allowed", "quota", "environment", "option", "count"),
    [
        (8, None, {}, None, 8),
        (8, 2.5, {}, None, 2),
        (8, 3.75, {}, None, 3),
        (8, 0.5, {}, None, 1),
        (2, 16.0, {}, None, 2),
        (8, 2.5, {"OMP_NUM_THREADS": "6"}, None, 6),
        (8, 2.5, {"OMP_NUM_THREADS": "6"}, 3, 3),
    ],
)
def test_threads_follow_affinity_quota_environment_and_option(
    allowed: int, quota: float | None, environment: dict[str, str], option: int | None, count: int
) -> None:
    assert choose_threads(allowed, quota, environment, option).count == count


@pytest.mark.parametrize("text", ["many", "0", "-1", "1.5", "\u00b2", "4097", "9" * 5000])
def test_nonsense_in_omp_num_threads_is_a_clear_error(text: str) -> None:
    with pytest.raises(ConfigError, match="OMP_NUM_THREADS"):
        choose_threads(8, None, {"OMP_NUM_THREADS": text}, None)


def test_the_cache_is_a_quarter_of_what_is_available_and_no_more_than_needed(
    tmp_path: Path,
) -> None:
    platform = CpuPlatform(root=machine_v2(tmp_path))
    assert platform.cache_budget(100 * GIB, None).bytes == GIB
    assert platform.cache_budget(1000, None).bytes == 1000
    assert platform.cache_budget(1000, 3 * GIB).bytes == 3 * GIB


def test_a_cache_that_does_not_fit_is_refused_with_the_limit(tmp_path: Path) -> None:
    platform = CpuPlatform(root=machine_v2(tmp_path))
    with pytest.raises(ConfigError, match=str(4 * GIB)):
        platform.cache_budget(1, 5 * GIB)


def test_prepare_sets_the_threads_and_says_so(tmp_path: Path) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        lines = CpuPlatform(CpuOptions(threads=1), root=machine_v2(tmp_path)).prepare()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert lines[0].startswith("cpu: 1 threads (asked for")
    assert lines[1] == "cpu: 4096 MiB of memory available (limit of the cgroup)"


def test_the_platform_is_ready_and_prefers_float32() -> None:
    platform = CpuPlatform()
    assert platform.detect().state == "ready"
    assert platform.facts().dtypes[0] == "float32"


@pytest.mark.parametrize(
    ("cpuinfo", "found"),
    [
        (
            "processor\t: 0\nflags\t\t: fpu fma avx2 f16c\nflags: amx\n",
            {"fma", "avx2", "f16c"},
        ),
        ("processor\t: 0\nFeatures\t: fp asimd sve\n", {"asimd", "sve"}),
        ("", set()),
    ],
)
def test_instruction_sets_are_those_of_the_first_processor(
    tmp_path: Path, cpuinfo: str, found: set[str]
) -> None:
    root = lay_out(tmp_path, {"proc/cpuinfo": cpuinfo})
    assert CpuPlatform(root=root).facts().features == found
