"""The platform that `framework explain` asks about."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, cast

from framework.errors import ConfigError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.platform import Platform
    from framework.plugins.registry import PluginRegistry

Capability = tuple[int, int]


def parse_capability(text: str) -> Capability:
    """(9, 0) of "9.0".  Raises ConfigError."""
    found = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})", text.strip())
    if found is None:
        raise ConfigError(
            "--capability cannot be read",
            expected="major and minor number, such as 9.0",
            found=shown(text, 80),
        )
    return int(found[1]), int(found[2])


class Place:
    """named: the platform that was asked for by --platform, or None.  capability: of a device that
    need not be there, or None."""

    def __init__(
        self,
        registry: PluginRegistry,
        config: EngineConfig,
        named: str | None = None,
        capability: Capability | None = None,
    ) -> None:
        self.registry, self.config = registry, config
        self._named, self._capability = named, capability

    @cached_property
    def platform(self) -> Platform | None:
        """The configured one, else the first by rank that finds its hardware; None without.

        Raises ConfigError for one that was named by --platform and is not ready, and for a
        capability that the platform cannot assume.
        """
        name = self._named or self.config.execution.platform
        if self._capability is not None:
            return self._assumed(name, self._capability)
        named = [self.registry.find("platform", name, named=True)] if name else None
        reasons: list[str] = []
        for record in named or self.registry.candidates("platform"):
            platform = cast("Platform", self.registry.create_record(record))
            found = platform.detect()
            if found.state == "ready":
                return platform
            reasons += (found.state, *found.reasons)
        if self._named:
            raise ConfigError(
                f"platform {self._named!r} is not ready here",
                expected="one that is ready, or the capability of a device that is not there",
                found="; ".join(reasons),
                mend="add --capability, such as 9.0, or leave --platform out",
            )
        return None

    def _assumed(self, name: str | None, capability: Capability) -> Platform:
        if name is None:
            raise ConfigError(
                "--capability says nothing without a platform",
                expected="--platform NAME --capability X.Y",
                found="no platform",
            )
        platform = cast("Platform", self.registry.create("platform", name, named=True))
        assumed = platform.assume(capability)
        if assumed is None:
            raise ConfigError(
                f"devices of platform {name!r} have no capabilities",
                expected="a platform that assumes devices by capability",
                found=name,
                mend="leave --capability out",
            )
        return assumed
