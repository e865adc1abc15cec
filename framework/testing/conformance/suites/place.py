"""Where plugins that work with tensors are tried: a bridge and the platforms that are ready."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import cast

from framework.contracts.platform import DeviceFacts, Platform
from framework.contracts.tensor_bridge import TensorBridge
from framework.errors import FrameworkError, PluginError
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance.outcomes import NoDevice
from framework.testing.conformance.shared import SHARED, Shared

INSTALL = "pip install framework[default]"


def bridge_to(registry: PluginRegistry, api: str) -> TensorBridge:
    """The bridge to the tensors of `api`.  Raises NoDevice where none is installed."""
    try:
        return cast(TensorBridge, registry.create("tensor_bridge", api))
    except PluginError as error:
        mend = f"; {error.mend}" if error.mend else ""
        raise NoDevice(f"there is no bridge to tensors of {api}: {error.message}{mend}") from error


@contextmanager
def odd_threads(bridge: TensorBridge) -> Iterator[None]:
    """Within, another number of threads than before: who sets what somebody else had set, too,
    would not be seen."""
    threads = bridge.defaults().get("threads")
    if isinstance(threads, int):
        bridge.restore({"threads": threads + 1})
    try:
        yield
    finally:
        bridge.restore({"threads": threads} if isinstance(threads, int) else {})


@contextmanager
def keeping_defaults(bridge: TensorBridge) -> Iterator[Mapping[str, object]]:
    """The defaults of the process, which are put back at the end."""
    before = bridge.defaults()
    try:
        yield before
    finally:
        bridge.restore(before)


def shared_rows(registry: PluginRegistry, own: str | None) -> Mapping[str, Shared]:
    """What all in this process share, with the defaults of the tensors of `own`, and of all others
    that this process has loaded."""
    rows = dict(SHARED)
    for api in sorted({record.name for record in registry.records("tensor_bridge")}):
        if api == own or api in sys.modules:
            # Without a bridge nothing is tried that could change them.
            with suppress(NoDevice, FrameworkError):
                bridge = bridge_to(registry, api)
                rows |= {f"{name} of {api}": _row(bridge, name) for name in bridge.defaults()}
    return rows


def _row(bridge: TensorBridge, name: str) -> Shared:
    return Shared(lambda: bridge.defaults()[name], lambda value: bridge.restore({name: value}))


def changes(
    before: Mapping[str, object], after: Mapping[str, object], *, but: Collection[str] = ()
) -> list[str]:
    """What has changed of the defaults of the process, a sentence each."""
    return [
        f"{name}: {was!s:.40} became {after[name]!s:.40}"
        for name, was in before.items()
        if name not in but and after[name] != was
    ]


def ready_platforms(registry: PluginRegistry, name: str | None = None) -> list[DeviceFacts]:
    """Facts of all platforms that are ready here, or of the one called `name`.

    A platform that fails is left out: it is not the one that is being tried.
    """
    found = []
    for record in registry.candidates("platform"):
        if name is not None and record.name != name:
            continue
        try:
            platform = cast(Platform, registry.create_record(record))
            if platform.detect().state == "ready":
                found.append(platform.facts())
        except FrameworkError:
            continue
    return found
