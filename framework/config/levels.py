"""Levels of optimization: sets of defaults, each with the source "level N".

    -O0  plain kernels, operator by operator: what others are compared with
    -O1  fused kernels, whose results are those of plain ones but for rounding
    -O2  what wins on this platform (the default)
    -O3  the same, with the layers of a model compiled for the machine at hand

Whatever else gives a value beats a level: a proposal of a plugin, file, environment, flag.
"""

from __future__ import annotations

from collections.abc import Mapping

from framework.config.layers import Merged, Setting, flat_setting

FIELD = "optimization_level"
LEVELS: Mapping[int, Mapping[str, object]] = {
    0: {"kernel_set": "plain"},
    1: {"kernel_set": "fused"},
    2: {"kernel_set": "best"},
    3: {"kernel_set": "best", "compile_layers": True},
}


def level_settings(*layers: list[Setting]) -> list[Setting]:
    """The defaults of the level that the layers ask for; none where it is not one, which whoever
    validates the configuration tells."""
    asked = Merged(*layers).values["execution"].get(FIELD, 2)
    level = next((level for level in LEVELS if str(asked).strip() == str(level)), None)
    fields = LEVELS[level] if level is not None else {}
    return [flat_setting(name, value, f"level {level}", "field") for name, value in fields.items()]
