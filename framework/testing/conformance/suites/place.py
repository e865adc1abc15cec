"""Where plugins that work with tensors are tried: a bridge and the platforms that are ready."""

from __future__ import annotations

from typing import cast

from framework.contracts.platform import DeviceFacts, Platform
from framework.contracts.tensor_bridge import TensorBridge
from framework.errors import FrameworkError, PluginError
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance.outcomes import NoDevice

INSTALL = "pip install framework[default]"


def bridge_to(registry: PluginRegistry, api: str) -> TensorBridge:
    """The bridge to the tensors of `api`.  Raises NoDevice where none is installed."""
    try:
        return cast(TensorBridge, registry.create("tensor_bridge", api))
    except PluginError as error:
        mend = f"; {error.mend}" if error.mend else ""
        raise NoDevice(f"there is no bridge to tensors of {api}: {error.message}{mend}") from error


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
