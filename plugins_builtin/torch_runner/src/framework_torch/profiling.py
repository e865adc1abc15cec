"""Where the time of steps goes by operator, the work that they are, and what the machine can do.

torch's profiler sees operators of torch.  Kernels and attention backends may be C code that it
does not see; so while it runs, the places where the model calls them are named ranges.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from framework.errors import InputError, IntegrityError, UnsupportedError

if TYPE_CHECKING:
    from framework_torch.loading import Loaded

MOST = 40
"""Operators of torch that are told: those that took longest.  Ours are told in any case."""
OURS = ("kernel ", "attention ")
_STREAM = 64 * 1024 * 1024  # float32 numbers: more than any cache holds
_SIDE = 1536
_TRIES = 5


class Profiler:
    """Begins and ends as `control` says; nothing of it is left in the model afterwards.

    folder: where traces go, if the operator gave one.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._open: ExitStack | None = None
        self._profile: Any = None
        self._traces = Traces(folder)
        self._trace: Path | None = None

    def control(
        self, loaded: Callable[[], Loaded], arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """See `framework.contracts.model_runner.ModelRunner.control`.  loaded: gives the model, or
        raises IntegrityError where there is none now."""
        match arguments.get("action"):
            case "begin":
                trace = self._traces.another() if arguments.get("trace") else None
                self._begin(loaded())
                self._trace = trace
                return {}
            case "end" if self._trace is not None:
                return self._write(self._trace)
            case "end":
                return self._end(loaded(), int(arguments["rows"]), int(arguments["context"]))
            case other:
                raise InputError(
                    "the action of `profile` is unknown", expected="begin or end", found=repr(other)
                )

    def close(self) -> None:
        """End what still runs."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def _begin(self, loaded: Loaded) -> None:
        if self._open is not None:
            raise IntegrityError("the profiler runs already")
        with ExitStack() as undo:
            for op, site in _sites(loaded):
                undo.enter_context(_Named(site, "forward", f"kernel {op}"))
            for name, backend in {
                id(c.backend): (c.name, c.backend) for c in _choices(loaded)
            }.values():
                undo.enter_context(_Named(backend, "run", f"attention {name}"))
            self._profile = undo.enter_context(
                torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
            )
            self._open = undo.pop_all()

    def _ended(self) -> Any:
        """torch's profile, once it is over."""
        if self._open is None:
            raise IntegrityError("the profiler does not run")
        opened, self._open = self._open, None
        found, self._profile = self._profile, None
        opened.close()
        return found

    def _write(self, path: Path) -> Mapping[str, Any]:
        self._trace = None
        profile = self._ended()
        profile.export_chrome_trace(str(path))
        if not path.exists():  # torch only logs that it could not
            raise UnsupportedError(f"the trace {path} cannot be written", mend="see the log")
        return {"trace": str(path)}

    def _end(self, loaded: Loaded, rows: int, context: int) -> Mapping[str, Any]:
        profile = self._ended()
        return {
            "operators": [
                (event.key, event.count, event.self_cpu_time_total * 1e-6)
                for event in _told(profile.key_averages())
            ],
            "work": work(loaded, rows, context),
            "machine": machine(),
        }


def _told(events: Iterable[Any]) -> list[Any]:
    """Those that are told, the longest first."""
    ordered = sorted(events, key=lambda event: -event.self_cpu_time_total)
    theirs = [event for event in ordered if not event.key.startswith(OURS)][:MOST]
    kept = set(map(id, theirs))
    return [event for event in ordered if event.key.startswith(OURS) or id(event) in kept]


class Traces:
    """Files for traces in a folder, each with a name of its own."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def another(self) -> Path:
        """A path where nothing is yet.  Raises UnsupportedError without a folder, or where no
        file can be made."""
        if self._folder is None:
            raise UnsupportedError(
                "there is nowhere to write a profile to",
                expected="an operator who gave the model runner a folder",
                found="none",
                mend="start with --plugin-option model_runner.torch.profile_folder=FOLDER",
            )
        name = f"profile-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(self._numbers)}.json"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder):
                pass
        except OSError as error:
            raise UnsupportedError(
                "no profile can be written to the folder that the operator gave",
                expected="a folder that can be written to",
                found=str(error),
                mend="choose another one with model_runner.torch.profile_folder",
            ) from error
        return self._folder / name


class _Named:
    """Within, `owner.name` is a named range of the profiler."""

    def __init__(self, owner: object, name: str, label: str) -> None:
        self._owner, self._name = owner, name
        self._label = label
        self._before = vars(owner).get(name)

    def __enter__(self) -> None:
        call, label = getattr(self._owner, self._name), self._label

        def named(*arguments: Any, **more: Any) -> Any:
            with torch.profiler.record_function(label):
                return call(*arguments, **more)

        setattr(self._owner, self._name, named)

    def __exit__(self, *error: object) -> None:
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def _sites(loaded: Loaded) -> list[tuple[str, Any]]:
    operators = getattr(loaded.model, "operators", dict)()
    return [(site.op, site) for site in operators.values() if hasattr(site, "forward")]


def _choices(loaded: Loaded) -> list[Any]:
    return list(loaded.attention.values())


def work(loaded: Loaded, rows: int, context: int) -> dict[str, float]:
    """Of a decode step of so many rows, each at so many tokens: flops of the linear operators,
    bytes of all weights in the form that is used, bytes of the cache that are read at most."""
    flops = weights = 0.0
    for _, site in _sites(loaded):
        if site.op in ("linear", "logits"):
            numbers = site.sizes["in_features"] * site.sizes["out_features"]
            flops += 2.0 * rows * numbers
        weights += getattr(site, "num_bytes", 0)
    cache = sum(layer.spec.page_bytes(context) for layer in loaded.layers.values())
    return {"flops": flops, "bytes": weights, "cache_bytes": float(rows * cache)}


def machine() -> dict[str, float]:
    """What torch reaches here with its threads: reading memory, and a float32 matrix product."""
    numbers = torch.ones(_STREAM)
    side = torch.rand(_SIDE, _SIDE)
    stream = _best(lambda: numbers.sum())
    product = _best(lambda: side @ side)
    return {
        "bytes_per_s": numbers.nbytes / stream,
        "flops_per_s": 2.0 * _SIDE**3 / product,
    }


def _best(call: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls."""
    found = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return cast(float, min(found))
