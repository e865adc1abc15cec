"""Every error that this project raises on purpose.

An error says what was expected, what was found and how to mend it.  Callers catch by
class: `InputError` is the caller's fault and concerns one request; `ConfigError` and
`PluginError` stop the start; `EngineDeadError` means that nothing more can be served.
"""

from __future__ import annotations

from typing import Any

from framework.shown import printable


class FrameworkError(Exception):
    """Base of all errors.

    `expected`, `found` and `mend` are optional sentences; those given are appended to the
    message, one line each, so that a log line or an HTTP body carries them too.  What others wrote
    may be part of all of them: a terminal gets no orders by it.
    """

    def __init__(
        self,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        mend: str | None = None,
    ) -> None:
        self.message = printable(message)
        self.expected = expected
        self.found = found
        self.mend = mend
        parts = [self.message]
        if expected is not None:
            parts.append(f"  expected: {expected}")
        if found is not None:
            parts.append(f"  found:    {found}")
        if mend is not None:
            parts.append(f"  mend:     {mend}")
        super().__init__(printable("\n".join(parts)))

    def as_dict(self) -> dict[str, Any]:
        """Class and sentences, as text or None, for programs."""
        names = ("expected", "found", "mend", "plugin", "distribution", "parameter")
        values = {name: getattr(self, name, None) for name in names}
        texts = {key: value and printable(str(value)) for key, value in values.items()}
        return {"type": type(self).__name__, "message": self.message, **texts}


class InputError(FrameworkError, ValueError):
    """A request is invalid.  `parameter` names the field; no other request is affected."""

    def __init__(
        self,
        message: str,
        *,
        parameter: str | None = None,
        expected: object = None,
        found: object = None,
        mend: str | None = None,
    ) -> None:
        super().__init__(message, expected=expected, found=found, mend=mend)
        self.parameter = parameter

    def within(self, place: str) -> InputError:
        """The same error, told to have happened at `place`."""
        return type(self)(
            f"{place}: {self.message}",
            parameter=self.parameter,
            expected=self.expected,
            found=self.found,
            mend=self.mend,
        )


class TooLongError(InputError):
    """A prompt does not fit the model's context."""


class ConfigError(FrameworkError, ValueError):
    """The configuration cannot be used."""


class ModelError(FrameworkError):
    """A model cannot be found, read or understood."""


class UnsupportedError(FrameworkError):
    """Something was asked that the chosen plugin did not declare."""


class PluginError(FrameworkError):
    """A plugin is unknown, denied, incompatible or failed.  Names it and its distribution."""

    def __init__(
        self,
        message: str,
        *,
        plugin: str | None = None,
        distribution: str | None = None,
        expected: object = None,
        found: object = None,
        mend: str | None = None,
    ) -> None:
        super().__init__(message, expected=expected, found=found, mend=mend)
        self.plugin = plugin
        self.distribution = distribution


class SelectionError(PluginError):
    """No candidate of a kind can serve a query, or the one that was named cannot."""


class RequestError(FrameworkError):
    """A request ended without what it was for: a fault in the engine, or somebody ended it."""


class _Later(FrameworkError):
    """Goes by.  retry_after: seconds after which to ask again."""

    def __init__(
        self,
        message: str,
        *,
        expected: object = None,
        found: object = None,
        mend: str | None = None,
        retry_after: float = 1.0,
    ) -> None:
        super().__init__(message, expected=expected, found=found, mend=mend)
        self.retry_after = retry_after


class OverloadedError(_Later):
    """The engine takes no more requests now.

    retry_after: seconds after which to ask again, an estimate: the mean time in which a place in
    the queue became free lately, from 0.1 to 60; 1 while nothing is known of it.
    """


class OverdueError(OverloadedError):
    """A request was accepted and given up, since its time to wait was over before its turn came."""


class IntegrityError(FrameworkError):
    """An owner of state found its own invariants broken.  Always a fault of this project."""


class EngineDeadError(FrameworkError):
    """The engine stopped after a fault; every pending request ends with this error."""


class EngineRestartingError(_Later, EngineDeadError):
    """The engine core died and another one is being started."""
