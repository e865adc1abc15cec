"""From the words of the command line to a trace."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from framework.bench.distributions import Lengths
from framework.bench.trace import Arrivals, Flood, Trace, read_trace
from framework.errors import ConfigError

MOST_REQUESTS = 2**22


def make_trace(
    file: Path | None, made: Mapping[str, Any], given: Collection[str]
) -> tuple[Trace, dict[str, Any]]:
    """(trace, what is needed to make it again).

    made: options of a made-up trace; given: those that the user wrote, which exclude a file.
    """
    if file is None:
        return _make(made), dict(made)
    both = sorted(name for name in made if name in given and name != "seed")
    if both:
        raise ConfigError(
            "a file of arrivals and options of made-up ones exclude each other",
            expected="--arrivals alone",
            found=", ".join("--" + name.replace("_", "-") for name in both),
        )
    trace, digest = read_trace(file)
    return trace, {"arrivals": str(file), "arrivals_sha256": digest}


def _make(made: Mapping[str, Any]) -> Trace:
    shares = parse_shares(made["tenants"])
    floods = tuple(parse_flood(text) for text in made["flood"])
    known = {*shares, *(flood.tenant for flood in floods)}
    count = made["num_requests"] + sum(flood.count for flood in floods)
    if not 1 <= count <= MOST_REQUESTS:
        raise ConfigError(
            "the number of requests is invalid", expected=f"1 to {MOST_REQUESTS}", found=count
        )
    return Arrivals(
        rate=made["rate"],
        num_requests=made["num_requests"],
        burstiness=made["burstiness"],
        shares=shares,
        floods=floods,
        prompt=parse_lengths(made["prompt_len"], "--prompt-len", known, "512"),
        output=parse_lengths(made["output_len"], "--output-len", known, "128"),
    ).make(made["seed"])


def parse_shares(text: str) -> dict[str, float]:
    """Read NAME[:SHARE],...  Raises ConfigError."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, colon, number = (piece.strip() for piece in part.partition(":"))
        share = _number(number) if colon else 1.0
        if not name or name in shares or not 0 < share < math.inf:
            raise ConfigError(
                "--tenants is invalid",
                expected="NAME[:SHARE],... with each name once and shares above 0",
                found=repr(text),
            )
        shares[name] = share
    return shares


def parse_flood(text: str) -> Flood:
    """Read TENANT:COUNT@SECONDS.  Raises ConfigError."""
    tenant, _, rest = text.rpartition(":")
    count, _, seconds = rest.partition("@")
    at = _number(seconds)
    if not tenant.strip() or not count.isdecimal() or not 0 <= at <= 1e9 or len(count) > 9:
        raise ConfigError(
            "--flood is invalid",
            expected="TENANT:COUNT@SECONDS, such as big:2000@10",
            found=repr(text),
        )
    return Flood(tenant=tenant.strip(), count=int(count), at=at)


def parse_lengths(
    texts: Sequence[str], option: str, tenants: Collection[str], default: str
) -> dict[str, Lengths]:
    """Read DISTRIBUTION or TENANT=DISTRIBUTION, several times; "" stands for all others.

    Raises ConfigError.
    """
    found: dict[str, Lengths] = {}
    for text in texts:
        tenant, equals, distribution = text.rpartition("=")
        if tenant in found or (equals and tenant not in tenants):
            raise ConfigError(
                f"{option} is given twice or for an unknown tenant",
                expected=f"once for all, and once each of {', '.join(sorted(tenants))}",
                found=repr(text),
            )
        found[tenant] = Lengths.parse(distribution, option)
    found.setdefault("", Lengths.parse(default, option))
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
