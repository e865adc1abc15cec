"""Name the plugin when one of its methods fails or answers something else than it promised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from framework.contracts.base import name_of
from framework.errors import FrameworkError, PluginError

T = TypeVar("T")
LONGEST = 2000
"""Characters of what a plugin says that a message repeats."""


class Halt(BaseException):
    """Stops a call of a plugin from outside, as a limit of time does: every guard lets it pass."""


def of_plugin(error: BaseException) -> BaseException:
    """The error, if it is the plugin's fault: whatever it raises, also what is no Exception, such
    as SystemExit or the panic of a library in Rust.  What comes from outside is raised again: an
    interrupt, the end of a generator, `Halt`."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit | Halt):
        raise error
    return error


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
    return "; ".join([error.message, *more])


def told(error: BaseException) -> str:
    """Class and text of an error, at most LONGEST characters of it; also of one that cannot tell
    its text."""
    try:
        text = str(error)
        more = f"... ({len(text)} characters)" if len(text) > LONGEST else ""
        return f"{type(error).__name__}: {_printable(text[:LONGEST])}{more}"
    except Exception as worse:
        return f"{type(error).__name__}, whose text fails ({type(worse).__name__})"


def _printable(text: str) -> str:
    """The text without what a terminal takes for orders, or UTF-8 cannot carry."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """The value as messages show it, in short; also of one that cannot be shown."""
    try:
        return f"{value!r:.80}"
    except Exception as error:
        return f"a {type(value).__name__} whose repr fails ({type(error).__name__})"


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
