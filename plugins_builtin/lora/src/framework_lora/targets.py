"""Which modules an adapter changes, by PEFT's settings: target_modules, exclude_modules,
layers_to_transform and layers_pattern.

    target_modules          a list: full names, or ends of names at a dot; a text: an expression
                            that must match the whole name; "all-linear": each linear map
    exclude_modules         in the same two forms; these are left out of them
    layers_to_transform     of what the list names by its end: layers with these numbers only
    layers_pattern          what stands before ".NUMBER." in names; without one, the first number
                            behind two dots
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from framework.errors import ModelError, UnsupportedError
from framework.shown import shown
from framework_lora.patterns import Patterns

ALL = "all-linear"
Names = str | Sequence[str]
_AGAIN = "correct it, or fetch the adapter again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """modules, excluded: an expression, or names.  layers: None means all.  before: expressions,
    none for any."""

    modules: Names
    excluded: Names
    layers: frozenset[int] | None
    before: Sequence[str]
    patterns: Patterns

    def selects(self, module: str) -> bool:
        """Whether PEFT would change a linear map of this name."""
        if self._named(self.excluded, module):
            return False
        if isinstance(self.modules, str):
            return self.modules.lower() == ALL or self._named(self.modules, module)
        if module in self.modules:
            return True
        return self._named(self.modules, module) and self._in_layers(module)

    def _named(self, names: Names, module: str) -> bool:
        if isinstance(names, str):
            return self.patterns.match(names, module, whole=True) is not None
        return module in names or any(module.endswith(f".{name}") for name in names)

    def _in_layers(self, module: str) -> bool:
        if self.layers is None:
            return True
        for pattern in self.before or (None,):
            found = self.patterns.match(_numbered(pattern), module)
            if found is not None:
                return int(found["layer"]) in self.layers
        return False


def read_targets(where: str, given: Mapping[str, Any], patterns: Patterns) -> Targets:
    """where: the file, for messages.  Raises ModelError and UnsupportedError as `read_config`."""
    modules = given.get("target_modules")
    if modules is None:
        raise UnsupportedError(
            f"{where}: target_modules is not given, for which PEFT would take a table of its own",
            expected="the names of the modules that the adapter changes",
            found="none",
            mend="write target_modules, such as the names of all modules in the other file",
        )
    targets = Targets(
        modules=_names(where, "target_modules", modules),
        excluded=_names(where, "exclude_modules", given.get("exclude_modules") or ()),
        layers=_layers(where, given.get("layers_to_transform")),
        before=_before(where, given.get("layers_pattern") or ()),
        patterns=patterns,
    )
    for names in (targets.modules, targets.excluded):
        if isinstance(names, str):
            patterns.check(names)
    for pattern in targets.before:
        patterns.check(_numbered(pattern))
    for key in ("layers_to_transform", "layers_pattern"):
        if given.get(key) is not None and isinstance(targets.modules, str):
            raise _bad(where, key, "nothing where target_modules is an expression", given[key])
    if targets.before and given.get("layers_to_transform") is None:
        raise _bad(where, "layers_pattern", "layers_to_transform beside it", targets.before)
    return targets


def _numbered(before: str | None) -> str:
    if before is None:
        return r".*?\.[^.]*\.(?P<layer>\d+)\."
    return rf"(?:^|.*?\.){before}\.(?P<layer>\d+)\."


def _names(where: str, key: str, value: object) -> Names:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise _bad(where, key, "a list of names of modules, or an expression", value)


def _layers(where: str, value: object) -> frozenset[int] | None:
    """PEFT takes an empty list for all."""
    numbers = value if isinstance(value, list) else [] if value is None else [value]
    if any(isinstance(one, bool) or not isinstance(one, int) for one in numbers):
        raise _bad(where, "layers_to_transform", "an integer or a list of integers", value)
    return frozenset(numbers) or None


def _before(where: str, value: object) -> Sequence[str]:
    names = _names(where, "layers_pattern", value)
    return (names,) if isinstance(names, str) else names


def _bad(where: str, key: str, expected: str, found: object) -> ModelError:
    return ModelError(
        f"{where}: {key} is invalid", expected=expected, found=f"{shown(found):.120}", mend=_AGAIN
    )
