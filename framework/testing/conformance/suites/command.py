"""The suite of kind `command`: what every sub-command does alike, whatever it is for."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any, ClassVar

from framework.cli.commands import MOST_WORDS, WORD, CommandCall, is_of_core
from framework.cli.context import RootOptions
from framework.contracts.command import Command
from framework.errors import FrameworkError
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.outcomes import Violation
from framework.testing.conformance.suite import Suite

PROGRAM = "framework under-test"
UNKNOWN = "--no-such-flag-of-any-command"


@dataclass(frozen=True, slots=True)
class Ran:
    """One run: what it gave back, what it wrote, and what it changed of the process."""

    status: object
    out: str
    err: str
    changed: tuple[str, ...]


ODD_WORDS = (
    *("--json", "-", "", "\0", "x" * 10_000, "-1", "1e999", "\u4e2d\udcff", "a=b", "--x=", ".."),
)
"""Beside an unknown flag."""


class CommandSuite(Suite):
    """longest_help: characters of the line in `framework --help`."""

    kind = "command"
    prints = True
    ordinary = ("help_is_printed",)
    longest_help: ClassVar[int] = 90

    def run(self, *arguments: str, command: Command | None = None) -> Ran:
        """Call the command, or a new one; catch what it writes, and undo what it changes."""
        made: Command = command or self.new()
        out, err = io.StringIO(), io.StringIO()
        call = CommandCall(program=PROGRAM, arguments=arguments, root=RootOptions())
        threads = set(threading.enumerate())
        status: object = None
        changed: list[str] = []
        with redirect_stdout(out), redirect_stderr(err):
            before = {name: read() for name, (read, _) in _PROCESS.items()}
            try:
                status = made.run(call)
            except SystemExit as end:
                status = end
            finally:  # each run is to find the process as it was, so that none hides another's
                for name, (read, put) in _PROCESS.items():
                    if read() != before[name]:
                        changed.append(name)
                        put(before[name])
        begun = [t.name for t in threading.enumerate() if t not in threads and t.is_alive()]
        changed += [f"thread {name}" for name in begun]
        return Ran(status, out.getvalue(), err.getvalue(), tuple(changed))

    # What the manifest says

    def _facts(self) -> dict[str, object]:
        facts = self.target.record.facts
        return dict(facts.facts) if facts is not None else {}

    @clause("CMD-001", "its path can be typed", layer=Layer.STATIC)
    def path_can_be_typed(self) -> None:
        said = self._facts().get("path", self.target.record.name)
        words = said.split() if isinstance(said, str) else []
        # A class of this process goes by its own name, which nobody types.
        if not self.target.installed:
            return
        expect(
            0 < len(words) <= MOST_WORDS and all(WORD.match(word) for word in words),
            "its path is none",
            expected=f"1 to {MOST_WORDS} words of small letters, digits and hyphens",
            found=said,
        )
        import typer

        from framework.cli.app import build_app

        core: Any = typer.main.get_command(build_app())
        expect(
            not is_of_core(core, tuple(words)),
            "its path is one that the core has, and leads there",
            expected="another",
            found=said,
        )

    @clause("CMD-002", "the manifest has its help, on one line", layer=Layer.STATIC, must=False)
    def help_is_known(self) -> None:
        if not self.target.installed:
            return
        said = self._facts().get("help")
        fine = isinstance(said, str) and said.strip() and "\n" not in said
        expect(
            fine and len(str(said)) <= self.longest_help,
            "`framework --help` cannot say what the command does",
            expected=f"[plugin.facts] help = one line of at most {self.longest_help} characters",
            found=said,
        )

    # What it does

    @clause("CMD-010", "--help prints the usage to stdout and is status 0", of=("run",))
    def help_is_printed(self) -> None:
        ran = self.run("--help")
        expect(
            type(ran.status) is int and ran.status == 0,
            "--help has another status",
            expected=0,
            found=_shown(ran.status),
        )
        expect(ran.out.strip(), "--help prints nothing", expected="the usage on stdout")

    @clause("CMD-011", "the usage names the program as it was called", of=("run",))
    def usage_names_the_program(self) -> None:
        ran = self.run("--help")
        words = (ran.out + ran.err).split()
        expect(
            PROGRAM.split() == [word for word in words if word in PROGRAM.split()][:2],
            "the usage is that of another program",
            expected=PROGRAM,
            found=f"{ran.out.strip():.80}",
        )

    @clause("CMD-012", "an unknown flag is status 2, and stderr says why", of=("run",))
    def unknown_flags_are_refused(self) -> None:
        ran = self.run(UNKNOWN)
        expect(
            type(ran.status) is int and ran.status == 2,
            "an unknown flag has another status",
            expected=2,
            found=_shown(ran.status),
        )
        expect(ran.err.strip(), "what is wrong is not told", expected="a sentence on stderr")

    @clause(
        "CMD-017",
        "whatever else stands beside an unknown flag, the call ends with status 2 and a reason",
        of=("run",),
    )
    def odd_words_are_refused(self) -> None:
        """The unknown flag keeps a command that understands the rest from its work."""
        for word in ODD_WORDS:
            # More than once, as the word may be a flag that takes the next one for its value.
            for words in ((word, *[UNKNOWN] * 3), (UNKNOWN, word)):
                try:
                    ran = self.run(*words)
                except FrameworkError:  # whose text the command line shows
                    continue
                except Exception as error:
                    raise Violation(
                        f"called with {words!r:.80} it raises {type(error).__name__}: {error}\n"
                        "  expected: status 2, and a sentence on stderr"
                    ) from error
                expect(
                    type(ran.status) is int and ran.status == 2 and ran.err.strip(),
                    f"called with {words!r:.80} it tells nobody what is wrong",
                    expected="status 2, and a sentence on stderr",
                    found=f"{_shown(ran.status)}, {ran.err.strip()[:80]!r}",
                )

    @clause("CMD-013", "a wrong call writes nothing to stdout", of=("run",))
    def wrong_calls_have_no_answer(self) -> None:
        ran = self.run(UNKNOWN)
        expect(not ran.out, "stdout is for the answer", expected="nothing", found=f"{ran.out:.80}")

    @clause("CMD-014", "it can be called again, with the same result", of=("run",))
    def it_can_be_called_again(self) -> None:
        command = self.new()
        first = self.run("--help", command=command)
        self.run(UNKNOWN, command=command)
        again = self.run("--help", command=command)
        expect(
            (_shown(again.status), again.out) == (_shown(first.status), first.out),
            "a second call has another result",
            expected=f"{first.out.strip():.80}",
            found=f"{_shown(again.status)}: {again.out.strip():.80}",
        )

    @clause("CMD-015", "the process is afterwards as it was", of=("run",))
    def the_process_stays(self) -> None:
        changed = {*self.run("--help").changed, *self.run(UNKNOWN).changed}
        expect(not changed, "the call changes the process", found=", ".join(sorted(changed)))

    @clause("CMD-016", "--help loads no heavy library, and no network", of=("run",))
    def help_is_light(self) -> None:
        if not self.target.installed:  # another process cannot find a class of this one
            return
        found = self.trial(ask_for_help)
        expect(not found.error, "--help fails in a fresh process", found=found.error)
        expect(
            not found.heavy and not found.network,
            "--help loads what only the work needs",
            expected="it is imported once the flags are understood",
            found=", ".join((*found.heavy, *found.network)),
        )


def ask_for_help(command: Command) -> None:
    """What the process of a probe does with an instance."""
    call = CommandCall(program=PROGRAM, arguments=("--help",), root=RootOptions())
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        command.run(call)


def _shown(status: object) -> str:
    return f"an exit: {status}" if isinstance(status, SystemExit) else repr(status)


def _signals() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _handle(handlers: dict[int, Any]) -> None:
    for number, handler in handlers.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _streams() -> tuple[Any, ...]:
    return sys.stdin, sys.stdout, sys.stderr


def _stream(streams: tuple[Any, ...]) -> None:
    sys.stdin, sys.stdout, sys.stderr = streams


def _environment(values: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(values)


def _logging() -> tuple[int, list[logging.Handler]]:
    return logging.getLogger().level, list(logging.getLogger().handlers)


def _log(found: tuple[int, list[logging.Handler]]) -> None:
    level, handlers = found
    logging.getLogger().setLevel(level)
    logging.getLogger().handlers[:] = handlers


# What a command must leave alone: how it is read, and put back.
_PROCESS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "the working directory": (os.getcwd, os.chdir),
    "the environment": (lambda: dict(os.environ), _environment),
    "sys.argv": (lambda: list(sys.argv), lambda words: setattr(sys, "argv", words)),
    "the signal handlers": (_signals, _handle),
    "the streams": (_streams, _stream),
    "level or handlers of the root logger": (_logging, _log),
}
