"""Which errors of a call of a plugin are its fault, and which come from outside."""

from __future__ import annotations


class Halt(BaseException):
    """Stops a call of a plugin from outside, as a limit of time does: every guard lets it pass."""


def of_plugin(error: BaseException) -> BaseException:
    """The error, if it is the plugin's fault: whatever it raises, also what is no Exception, such
    as SystemExit or the panic of a library in Rust.  What comes from outside is raised again: an
    interrupt, the end of a generator, `Halt`."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit | Halt):
        raise error
    return error
