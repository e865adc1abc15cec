"""The configuration for other eyes than the operator's."""

from __future__ import annotations

from typing import Any

from framework.config.layers import OPTIONS
from framework.config.resolve import holds_secrets
from framework.config.sections import EngineConfig

HIDDEN = "**********"


def shown_settings(config: EngineConfig) -> dict[str, Any]:
    """ "section.field" -> value as JSON has it.  Hidden are secrets, and options of plugins, of
    which only the plugin knows whether they are some."""
    values = config.model_dump(mode="json")
    found: dict[str, Any] = {}
    for section, fields in values.items():
        for name, value in fields.items():
            hide = name == OPTIONS or holds_secrets(section, name)
            found[f"{section}.{name}"] = HIDDEN if hide and value else value
    return found
