"""Which platform and element type a runner uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from framework.config.dtypes import DTYPE_ALIASES
from framework.contracts.platform import Detection, DeviceFacts, Platform
from framework.errors import ConfigError, SelectionError
from framework.plugins.blame import blaming, expect, unfit
from framework.plugins.lookup import kept_out
from framework.plugins.near import did_you_mean
from framework.shown import shown

if TYPE_CHECKING:
    from framework.plugins.registry import PluginRegistry

DTYPES = ("float32", "bfloat16", "float16")


def choose_platform(registry: PluginRegistry, operator: str | None) -> Platform:
    """The operator's, or the first that is ready, by rank.

    Raises SelectionError when none is ready, and when one is broken and none was named: a
    machine with a broken accelerator must not quietly run on something slower.
    """
    if operator is not None:
        platform = cast(Platform, registry.create("platform", operator, named=True))
        found = _detect(platform)
        if found.state != "ready":
            raise SelectionError(
                f"the chosen platform {operator!r} is {found.state}",
                plugin=f"platform:{operator}",
                expected="a platform that is ready",
                found="; ".join(found.reasons) or found.state,
                mend="mend that, or choose another platform",
            )
        return platform
    ready: Platform | None = None
    states = []
    for record in registry.candidates("platform"):
        candidate = cast(Platform, registry.create_record(record))
        found = _detect(candidate)
        states.append(f"{record.name}: {found.state}")
        if found.state == "broken":
            raise SelectionError(
                f"platform {record.name!r} is there but cannot be used",
                plugin=record.key,
                distribution=record.distribution,
                expected="ready or absent",
                found="; ".join(found.reasons),
                mend="mend that, or name the platform to use, for example `--platform cpu`",
            )
        if found.state == "ready" and ready is None:
            ready = candidate
    if ready is None:
        kept = kept_out(registry.records("platform"))
        raise SelectionError(
            "no platform is ready",
            plugin="platform",
            expected="one that is ready",
            found=", ".join(filter(None, (*states, kept))) or "none is installed",
            mend="mend that, or allow it" if kept else "pip install framework-plugin-cpu",
        )
    return ready


def _detect(platform: Platform) -> Detection:
    with blaming(platform, "looking for its hardware"):
        found = expect(platform, "detect", platform.detect(), Detection)
    if found.state not in ("absent", "broken", "ready"):
        raise unfit(platform, "answered detect", "absent, broken or ready", found.state)
    return found


def facts_of(platform: Platform) -> DeviceFacts:
    """Facts of a ready platform.  Raises PluginError if they are none."""
    with blaming(platform, "telling its facts"):
        facts = expect(platform, "facts", platform.facts(), DeviceFacts)
    if not facts.dtypes:
        raise unfit(platform, "answered facts", "at least one element type", facts.dtypes)
    return facts


def named_dtype(asked: str, auto: str, field: str = "dtype") -> str:
    """A name as torch writes it; "auto" is `auto`.  field: what was set so.  Raises ConfigError."""
    name = auto if asked == "auto" else DTYPE_ALIASES.get(asked, asked)
    if name not in DTYPES:
        known = ["auto", *DTYPES, *DTYPE_ALIASES]
        raise ConfigError(
            f"unknown {field} {shown(asked, 80)}{did_you_mean(asked[:80], known)}",
            expected=", ".join(known),
            found=shown(asked, 80),
        )
    return name


def choose_dtype(asked: str, facts: DeviceFacts) -> str:
    """A name as torch writes it; "auto" is the platform's first.  Raises ConfigError."""
    name = named_dtype(asked, facts.dtypes[0])
    if name not in facts.dtypes:
        raise ConfigError(
            f"platform {facts.name!r} does not compute in {name}",
            expected=f"one of {', '.join(facts.dtypes)}",
            found=name,
        )
    return name
