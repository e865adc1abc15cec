"""Where the time of steps goes by operator, the work that they are, and what the machine can do.

torch's profiler sees operators of torch.  Kernels and attention backends may be C code that it
does not see; so while it runs, the places where the model calls them are named ranges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import torch

from framework.errors import InputError, IntegrityError

if TYPE_CHECKING:
    from framework_torch.loading import Loaded

MOST = 40
"""Operators that are told."""
_STREAM = 64 * 1024 * 1024  # float32 numbers: more than any cache holds
_SIDE = 1536
_TRIES = 5


class Profiler:
    """Begins and ends as `control` says; nothing of it is left in the model afterwards."""

    def __init__(self) -> None:
        self._open: ExitStack | None = None
        self._profile: Any = None

    def control(self, loaded: Loaded, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `framework.contracts.model_runner.ModelRunner.control`."""
        match arguments.get("action"):
            case "begin":
                self._begin(loaded)
                return {}
            case "end":
                return self._end(loaded, int(arguments["rows"]), int(arguments["context"]))
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

    def _end(self, loaded: Loaded, rows: int, context: int) -> Mapping[str, Any]:
        if self._open is None:
            raise IntegrityError("the profiler does not run")
        opened, self._open = self._open, None
        opened.close()
        events = sorted(self._profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
        self._profile = None
        return {
            "operators": [
                (event.key, event.count, event.self_cpu_time_total * 1e-6)
                for event in events[:MOST]
            ],
            "work": work(loaded, rows, context),
            "machine": machine(),
        }


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
    bytes of their weights in the form that is used, bytes of the cache that are read at most."""
    flops = weights = 0.0
    for _, site in _sites(loaded):
        if site.op in ("linear", "logits"):
            numbers = site.sizes["in_features"] * site.sizes["out_features"]
            flops += 2.0 * rows * numbers
            weights += getattr(site, "num_bytes", 4 * numbers)
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
