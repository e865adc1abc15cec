"""A trace: which requests come when.  From a file of JSON lines, or made up."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from framework.bench.distributions import F64, I64, MOST, Lengths
from framework.errors import ConfigError
from framework.plugins.near import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """n requests in order of arrival.

    arrival: seconds, float64.  prompt, output: tokens, int64.  tenant: index into
    `tenant_names`, int64.  priority: int64, lower first.
    """

    arrival: F64
    prompt: I64
    output: I64
    tenant: I64
    priority: I64
    tenant_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, prompt and output."""
        return int((self.prompt + self.output).max(initial=0))


def _sorted(names: tuple[str, ...], **columns: Any) -> Trace:
    order = np.argsort(columns["arrival"], kind="stable")
    return Trace(tenant_names=names, **{name: values[order] for name, values in columns.items()})


# From a file

_FIELDS: Mapping[str, Any] = {"arrival": None, "prompt": None, "output": None}
_OPTIONAL: Mapping[str, Any] = {"tenant": "", "priority": 0}
FORMAT = (
    '{"arrival": SECONDS, "prompt": TOKENS, "output": TOKENS, "tenant": NAME, "priority": INTEGER}'
)


def read_trace(path: Path) -> tuple[Trace, str]:
    """(trace, sha256 of the file).  One JSON object a line; tenant and priority may be left
    out, and the order is free.  Raises ConfigError that names the line."""
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8").split("\n")  # a name may hold other ends of lines
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the arrivals cannot be read: {error}",
            expected=f"a file of lines {FORMAT}",
            found=str(path),
        ) from error
    rows = [
        _row(line, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not rows:
        raise ConfigError(f"{path} holds no request", expected=f"lines {FORMAT}", found="none")
    index: dict[str, int] = {}
    tenant = [index.setdefault(row["tenant"], len(index)) for row in rows]
    trace = _sorted(
        tuple(index),
        arrival=np.array([row["arrival"] for row in rows], np.float64),
        prompt=np.array([row["prompt"] for row in rows], np.int64),
        output=np.array([row["output"] for row in rows], np.int64),
        tenant=np.array(tenant, np.int64),
        priority=np.array([row["priority"] for row in rows], np.int64),
    )
    return trace, sha256(data).hexdigest()


def _row(line: str, place: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is no JSON: {error}", expected=FORMAT) from error
    if not isinstance(row, dict):
        raise ConfigError(f"{place} is no request", expected=FORMAT, found=f"{line:.80}")
    known = [*_FIELDS, *_OPTIONAL]
    for name in row:
        if name not in known:
            raise ConfigError(
                f"{place} has an unknown field {name!r:.80}{did_you_mean(name, known)}",
                expected=FORMAT,
            )
    for name in _FIELDS:
        if name not in row:
            raise ConfigError(f"{place} lacks {name!r}", expected=FORMAT, found=f"{line:.80}")
    full = {**_OPTIONAL, **row}
    for name, (fits, expected) in _CHECKS.items():
        if not fits(full[name]):
            raise ConfigError(
                f"{place}: {name!r} is invalid", expected=expected, found=f"{full[name]!r:.80}"
            )
    return full


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _is_time(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value <= 1e9 and math.isfinite(value)


def _is_priority(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31


_LENGTH = f"an integer in [1, {MOST}]"
_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "arrival": (_is_time, "seconds in [0, 1e9]"),
    "prompt": (_is_length, _LENGTH),
    "output": (_is_length, _LENGTH),
    "tenant": (lambda value: isinstance(value, str), "a string"),
    "priority": (_is_priority, "a 32-bit integer"),
}


# Made up


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """`count` requests of one tenant at one time, in seconds."""

    tenant: str
    count: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """A made-up trace.

    rate: requests a second of all tenants together; inf: all at once.  num_requests: without
    floods.  shares: tenant -> its part of the rate.  burstiness: shape of the gamma
    distribution of the time between two arrivals: 1 is a Poisson process, less comes in
    bursts, more is steadier.  prompt, output: by tenant; "" stands for all others.
    """

    rate: float
    num_requests: int
    shares: Mapping[str, float]
    prompt: Mapping[str, Lengths]
    output: Mapping[str, Lengths]
    burstiness: float = 1.0
    floods: tuple[Flood, ...] = ()

    def make(self, seed: int) -> Trace:
        """The same trace for the same seed."""
        generator = np.random.default_rng(seed)
        names = tuple(dict.fromkeys([*self.shares, *(flood.tenant for flood in self.floods)]))
        shares = np.array([self.shares.get(name, 0.0) for name in names])
        shares = shares / (shares.max(initial=0.0) or 1.0)  # so that no sum of them is too large
        count = self.num_requests if shares.any() else 0
        gaps = np.zeros(count)
        if math.isfinite(self.rate):
            gaps = generator.gamma(self.burstiness, 1 / (self.rate * self.burstiness), count)
        tenant = [generator.choice(len(names), count, p=shares / shares.sum())] if count else []
        arrival = [np.cumsum(gaps)]
        for flood in self.floods:
            tenant.append(np.full(flood.count, names.index(flood.tenant)))
            arrival.append(np.full(flood.count, flood.at))
        tenants = np.concatenate(tenant).astype(np.int64)
        return _sorted(
            names,
            arrival=np.concatenate(arrival),
            prompt=_lengths(self.prompt, names, tenants, generator),
            output=_lengths(self.output, names, tenants, generator),
            tenant=tenants,
            priority=np.zeros(len(tenants), np.int64),
        )


def _lengths(
    by_tenant: Mapping[str, Lengths],
    names: Iterable[str],
    tenants: I64,
    generator: np.random.Generator,
) -> I64:
    lengths = np.zeros(len(tenants), np.int64)
    for index, name in enumerate(names):
        mine = tenants == index
        lengths[mine] = by_tenant.get(name, by_tenant[""]).draw(generator, int(mine.sum()))
    return lengths
