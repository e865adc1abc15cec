"""The command that shows a failure again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.errors import FrameworkError
from framework.plugins.options import is_secret
from framework.testing.conformance.catalogue import suite_of

if TYPE_CHECKING:
    from framework.testing.conformance.clauses import Clause
    from framework.testing.conformance.suite import Suite
    from framework.testing.conformance.target import Target

FLAGS = {"seed": "--seed", "only_case": "--case", "budget": "--budget", "slowness": "--slowness"}
"""Arguments of `check` and the options of the command that mean the same."""


def command(
    suite: type[Suite], target: Target, clause: Clause, settings: Mapping[str, object]
) -> str:
    """A line for a shell; for a class that no other process can import, one of Python.

    settings: arguments of `check` among FLAGS that are not the default.
    A secret option of the plugin is left for the reader to fill in.
    """
    own = suite is not suite_of(target.kind.name)
    if not target.importable:
        words = [f"only=[{clause.id!r}]", *(f"{key}={value!r}" for key, value in settings.items())]
        if own:
            words.insert(0, f"suite={suite.__name__}")
        return f"check({target.record.value.rpartition('.')[2]}, {', '.join(words)})"
    name, key = f"{target.kind.name}:{target.record.name}", target.key
    words = ["framework"]
    if not target.installed:
        words += ["--plugin", f"{name}={target.record.value}"]
        key = name
    for option, value in target.options.items():
        shown = "..." if _is_hidden(target, option) else value
        words += ["--plugin-option", f"{name.replace(':', '.', 1)}.{option}={shown}"]
    words += ["plugins", "conform", key, "--clause", clause.id]
    if own and "<" not in suite.__qualname__:
        words += ["--suite", f"{suite.__module__}:{suite.__qualname__}"]
    for setting, value in settings.items():
        words += [FLAGS[setting], f"{value}"]
    return shlex.join(words)


def _is_hidden(target: Target, option: str) -> bool:
    try:
        model = target.load().Options
    except FrameworkError:
        return True
    return model is None or is_secret(model, option)
