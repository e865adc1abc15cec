"""Which model runner an executor makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from framework.errors import SelectionError
from framework.plugins.lookup import kept_out

if TYPE_CHECKING:
    from framework.contracts.model_runner import ModelRunner, RunnerContext


def create_runner(context: RunnerContext) -> ModelRunner:
    """The runner of `context.choices["model_runner"]`, or else the best ranked candidate; not
    loaded yet.

    Raises PluginError where the chosen one cannot be had, and SelectionError where there is none:
    that a rule of the operator keeps one out is told, so that nobody installs it again.
    """
    registry = context.registry
    name = context.choices.get("model_runner")
    if name is not None:
        return cast("ModelRunner", registry.create("model_runner", name, named=True))
    candidates = registry.candidates("model_runner")
    if not candidates:
        kept = kept_out(registry.records("model_runner"))
        raise SelectionError(
            "no model runner may be used" if kept else "no model runner is installed",
            plugin="model_runner",
            expected="one",
            found=kept or "none",
            mend="mend that, or allow it" if kept else "pip install framework-plugin-torch",
        )
    return cast("ModelRunner", registry.create("model_runner", candidates[0].name))
