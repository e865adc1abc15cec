"""Name the plugin when one of its methods fails or answers something else than it promised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from framework.contracts.base import name_of
from framework.errors import FrameworkError, PluginError
from framework.halt import Halt as Halt
from framework.halt import of_plugin as of_plugin
from framework.shown import printable, shown

T = TypeVar("T")
LONGEST = 2000
"""Characters of what a plugin says that a message repeats."""


@contextmanager
def blaming(plugin: object, doing: str) -> Iterator[None]:
    """An error that `plugin` did not foresee becomes a PluginError that names it.

    doing: what it was asked to do, as in "failed while loading weights".
    """
    try:
        yield
    except FrameworkError:
        raise
    except BaseException as error:
        raise failure(plugin, doing, error) from error


def failure(plugin: object, doing: str, error: BaseException) -> PluginError:
    """The error that `blaming` raises.  Raises `error` itself if it comes from outside."""
    return _error(plugin, f"failed while {doing}: {told(of_plugin(error))}", None, None)


def expect(plugin: object, method: str, answer: object, kind: type[T]) -> T:
    """The answer, if it is of the class that the contract promises."""
    if isinstance(answer, kind):
        return answer
    found = shown(answer)
    raise _error(plugin, f"answered {method} with {found}", kind.__name__, found)


def unfit(plugin: object, what: str, expected: str, found: object) -> PluginError:
    """An answer of the right class with values that cannot be."""
    return _error(plugin, what, expected, found)


def in_one_line(error: FrameworkError) -> str:
    """The sentence with which a request ends, where only that request is concerned."""
    parts = {"expected": error.expected, "found": error.found}
    more = [f"{name} {what}" for name, what in parts.items() if what is not None]
    return printable("; ".join([error.message, *more]))


def told(error: BaseException) -> str:
    """Class and text of an error, at most LONGEST characters of it; also of one that cannot tell
    its text."""
    try:
        text = str(error)
        more = f"... ({len(text)} characters)" if len(text) > LONGEST else ""
        return f"{type(error).__name__}: {printable(text[:LONGEST])}{more}"
    except BaseException as worse:
        return f"{type(error).__name__}, whose text fails ({type(of_plugin(worse)).__name__})"


def _error(plugin: object, what: str, expected: object, found: object) -> PluginError:
    name = name_of(plugin)
    owner = name.partition("@")[2] or name
    return PluginError(
        f"plugin {name} {what}",
        plugin=name,
        distribution=name.partition("@")[2] or None,
        expected=expected,
        found=found,
        mend=f"upgrade {owner}, or choose another plugin of its kind",
    )
