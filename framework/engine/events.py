"""Who hears of what happens in an engine: hooks and statistics.  What nobody listens to costs one
comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from framework.plugins.hooks import build_hooks

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.messages import EngineInput, EngineOutputs
    from framework.contracts.stat_logger import Snapshot
    from framework.engine.output_processor import Ended
    from framework.plugins.hooks import Hooks
    from framework.plugins.registry import PluginRegistry
    from framework.stats.loggers import StatLoggers


class Events:
    """Tells them.  A plugin that fails is reported under its name and disturbs nobody."""

    def __init__(self, hooks: Hooks | None = None, loggers: StatLoggers | None = None) -> None:
        hear = hooks.caller if hooks is not None else _nobody
        self._start = hear("engine_started")
        self._add = hear("request_added")
        self._first = hear("request_first_token")
        self._finish = hear("request_finished")
        self._close = hear("engine_closed")
        self._loggers = loggers
        self._statistics = loggers.statistics if loggers is not None else None

    def snapshot(self) -> Snapshot:
        """The statistics now; from any thread.  Raises RuntimeError where none are kept."""
        if self._statistics is None:
            raise RuntimeError("no statistics are kept")
        return self._statistics.snapshot()

    def prepare(self, cache: Mapping[str, str]) -> None:
        """The core is there.  cache: facts of its cache.  Raises PluginError for a stat logger
        that cannot be started."""
        if self._loggers is not None:
            self._loggers.start(cache)

    def leave(self) -> None:
        """End the stat loggers; may take seconds."""
        if self._loggers is not None:
            self._loggers.close()

    def core_ended(self) -> None:
        """The core died or was shut down."""
        if self._statistics is not None:
            self._statistics.core_ended()

    def core_restarted(self) -> None:
        """Another core took the place of one that died."""
        if self._statistics is not None:
            self._statistics.core_restarted()

    def started(self, notes: tuple[str, ...]) -> None:
        """The engine is ready.  notes: its start-up lines."""
        if self._start is not None:
            self._start(notes=notes)

    def added(self, inputs: Sequence[EngineInput]) -> None:
        """The core has accepted these."""
        if self._statistics is not None:
            self._statistics.added(inputs)
        if self._add is not None:
            for request in inputs:
                self._add(request=request)

    def stepped(self, outputs: EngineOutputs) -> None:
        """A step has ended."""
        if self._statistics is not None:
            self._statistics.stepped(outputs)

    def first_tokens(self, waited: Mapping[str, float]) -> None:
        """The first token of these has come; by request id, seconds until they had a slot."""
        if self._first is not None:
            for request_id, seconds in waited.items():
                self._first(request_id=request_id, waited=seconds)

    def ended(self, ended: Sequence[Ended]) -> None:
        """These outputs ended."""
        if self._statistics is not None:
            self._statistics.ended(ended)
        if self._finish is not None:
            for end in ended:
                self._finish(
                    request_id=end.request_id,
                    reason=end.reason,
                    num_output_tokens=end.num_output_tokens,
                )

    def closed(self) -> None:
        """The engine was shut down."""
        if self._close is not None:
            self._close()


def _nobody(event: str) -> Callable[..., object] | None:
    """Who listens where there are no hooks."""
    return None


def build_events(config: EngineConfig, registry: PluginRegistry, *, count: bool = False) -> Events:
    """With the hooks that are activated and the stat loggers that the operator named.

    count: keep statistics also where no stat logger asks for them.  Raises PluginError.
    """
    limit, names = config.plugin.plugin_error_limit, config.plugin.stat_loggers
    hooks = build_hooks(registry, limit)
    if not names and not count:
        return Events(hooks)
    from framework.stats.loggers import create_loggers

    return Events(hooks, create_loggers(registry, names, limit))
