"""`framework collect-env`: what a report of a fault has to say of machine and software."""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli.context import registry_of
from framework.cli.printing import Json, print_json
from framework.errors import FrameworkError

if TYPE_CHECKING:
    from framework.plugins.records import Record

HIDDEN = "**********"
CGROUP = Path("/sys/fs/cgroup")
LIBRARIES = (
    *("torch", "transformers", "tokenizers", "safetensors", "gguf", "numpy", "pydantic", "msgspec"),
    *("pyzmq", "fastapi", "starlette", "uvicorn", "httpx", "prometheus-client", "openai", "vllm"),
)
VARIABLES = re.compile(
    r"(FRAMEWORK_.*|OMP_.*|MKL_.*|OPENBLAS_.*|KMP_.*|GOMP_.*|CUDA_.*|NVIDIA_.*|NCCL_.*|ROCR_.*|HIP_.*"
    r"|TORCH.*|PYTORCH_.*|TRITON_.*|HF_.*|HUGGING_FACE_.*|TRANSFORMERS_.*|TOKENIZERS_.*|PYTHON.*"
    r"|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH|LD_PRELOAD|MALLOC_.*|PATH|LANG|LC_.*"
    r"|(HTTPS?|NO|ALL)_PROXY)\Z",
    re.IGNORECASE,
)
SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|PLUGIN_OPTION|COOKIE", re.I)
NO_SECRET = re.compile(r"TOKENIZER", re.I)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def collect_env(
    context: typer.Context,
    as_json: Json = False,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also import torch and ask it for its devices.")
    ] = False,
) -> None:
    """Describe machine, Python, plugins and environment. Values that may be secrets are masked;
    nothing heavy is imported."""
    found = collect(context, probe=probe)
    if as_json:
        print_json(found)
        return
    for section, values in found.items():
        print(f"{section}")
        for line in _shown(values):
            print(f"  {line}")


def collect(context: typer.Context, *, probe: bool = False) -> dict[str, Any]:
    """Section -> name -> value."""
    found: dict[str, Any] = {
        "machine": machine(),
        "python": {
            "version": sys.version.split()[0],
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "virtual environment": sys.prefix != sys.base_prefix,
        },
        "framework": dict(distributions()),
        "libraries": dict(libraries(LIBRARIES)),
        "plugins": plugins(context),
        "environment": dict(environment(os.environ)),
    }
    if probe:
        found["devices"] = devices()
    return found


def machine() -> dict[str, Any]:
    """Of system, processor and memory, with the limits of the container."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "architecture": platform.machine(),
        "cpus": os.cpu_count(),
        "cpus that may be used": len(affinity(0)) if affinity else os.cpu_count(),
        "cpu limit of the cgroup": cpu_limit(CGROUP),
        "memory": _gigabytes(_memory()),
        "memory limit of the cgroup": _gigabytes(memory_limit(CGROUP)),
        "shared memory": _gigabytes(_space("/dev/shm")),
        "open files": _open_files(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def _processor() -> str | None:
    found = re.search(r"^model name\s*:\s*(.+)$", _read(Path("/proc/cpuinfo")), re.M)
    return found[1] if found else platform.processor() or None


def _memory() -> int | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read(Path("/proc/meminfo")), re.M)
    return int(found[1]) * 1024 if found else None


def cpu_limit(root: Path) -> float | None:
    """CPUs that the container may use, by version 2 or 1 of cgroups; None is no limit."""
    quota, _, period = _read(root / "cpu.max").partition(" ")
    if not quota:
        quota = _read(root / "cpu" / "cpu.cfs_quota_us")
        period = _read(root / "cpu" / "cpu.cfs_period_us")
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None
    return int(quota) / int(period)


def memory_limit(root: Path) -> int | None:
    """Bytes that the container may use; None is no limit."""
    text = _read(root / "memory.max") or _read(root / "memory" / "memory.limit_in_bytes")
    # Version 1 writes "no limit" as a number that no machine has.
    return int(text) if text.isdecimal() and int(text) < 2**60 else None


def _space(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return found.f_frsize * found.f_blocks


def _open_files() -> str | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{soft} (at most {hard})"


def _gigabytes(size: int | None) -> str | None:
    return None if size is None else f"{size / 2**30:.1f} GiB"


def distributions() -> Iterator[tuple[str, str]]:
    """Name -> version and place of the core and of every distribution that brings a plugin."""
    from framework.plugins.distributions import installed

    for one in sorted(installed(None), key=lambda one: one.name):
        if one.has_plugins or one.name == "framework":
            yield one.name, f"{one.version or 'unknown'} ({Path(one.location).parent})"


def libraries(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Versions of what is installed, from metadata alone."""
    for name in names:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def plugins(context: typer.Context) -> list[dict[str, Any]] | str:
    """Of every plugin where it comes from and whether it may be used; the error instead, where
    the configuration cannot be read."""
    try:
        return [_plugin(record) for record in registry_of(context).records()]
    except FrameworkError as error:
        return f"not known: {error.message}"


def _plugin(record: Record) -> dict[str, Any]:
    return {
        "plugin": record.key,
        "version": record.version,
        "first_party": record.first_party,
        "origin": record.origin,
        "entry_point": record.value,
        "state": record.state.value,
        "reason": record.reason,
    }


def environment(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What changes how programs like this behave; secrets are masked."""
    for name in sorted(variables):
        if VARIABLES.match(name):
            secret = SECRET.search(NO_SECRET.sub("", name))
            yield name, HIDDEN if secret else _LOGIN.sub(HIDDEN, variables[name])


def devices() -> dict[str, Any]:
    """What torch finds; imports it."""
    try:
        torch: Any = importlib.import_module("torch")  # nothing here depends on it
    except Exception as error:
        return {"torch": f"cannot be imported: {type(error).__name__}: {error}"}
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "cuda is available": torch.cuda.is_available(),
    }
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count())]
        found["cuda devices"] = ", ".join(names)
    return found


def _shown(values: object) -> Iterator[str]:
    if isinstance(values, Mapping):
        width = max(map(len, values), default=0)
        for name, value in values.items():
            yield f"{name:<{width}}  {'-' if value is None else value}"
    elif isinstance(values, list):
        for row in values:
            origin = "first party" if row["first_party"] else row["origin"]
            reason = f": {row['reason']}" if row["reason"] else ""
            yield f"{row['plugin']} {row['version'] or '-'} ({origin}), {row['state']}{reason}"
    else:
        yield str(values)
