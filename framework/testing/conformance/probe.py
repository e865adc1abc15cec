"""Import a plugin in a process of its own and see what that does to it.

An import can end a process, hang, start threads, load libraries of gigabytes, open
connections and patch what others rely on.  None of this may happen to the process that asks.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from framework.plugins.tied import ending, ends, tied
from framework.plugins.watch import HEAVY as HEAVY
from framework.testing.conformance.forks import ForkServer

IMPORT_BUDGET = 20.0
"""Seconds after which an import counts as hanging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What an import did.

    error: what it raised, or how the process ended; "" if it worked.  ended: the process was
    ended by the import.  timed_out: it was killed.  seconds: of the import alone, see Stopwatch.
    heavy: libraries of HEAVY that it loaded.  printed: to standard output.  Others: one sentence
    for each thing that happened.
    """

    error: str = ""
    ended: bool = False
    timed_out: bool = False
    seconds: float = 0.0
    heavy: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    patches: tuple[str, ...] = ()
    printed: str = ""


_FROM_OUTSIDE = {"ended", "timed_out", "printed"}
"""Fields that the process cannot tell of itself."""


def probe_import(
    value: str,
    *,
    budget: float = IMPORT_BUDGET,
    exercise: str | None = None,
    options: Mapping[str, Any] | None = None,
    forks: ForkServer | None = None,
) -> Probe:
    """Import "module:attr" in a process of its own, at most `budget` seconds.

    forks: what makes that process; None: a new interpreter.
    exercise: "module:function"; the class is also made, with `options`, and the instance given
    to the function; then `seconds` are those of the function, and all else is of both.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, printed, said = (Path(folder) / name for name in ("answer.json", "out", "err"))
        arguments = [value, str(answer)]
        if exercise is not None:
            arguments += [exercise, json.dumps(dict(options or {}))]
        # Files and no pipes: whoever it starts may keep a pipe open.
        with printed.open("wb") as out, said.open("wb") as err:
            run = _run if forks is None else forks.run
            try:
                status = run(arguments, stdout=out, stderr=err, budget=budget)
            except ConnectionError:
                return Probe(error="the import ended the process that had started it", ended=True)
        if status is None:
            return Probe(
                error=f"the import did not end within {budget:g} s",
                timed_out=True,
                seconds=budget,
            )
        if not answer.exists():
            lines = _text(said).strip().splitlines()
            last = f"; it last wrote {lines[-1]!r:.200}" if lines else ""
            return Probe(
                error=f"the import ended the process with {ending(status)}{last}", ended=True
            )
        report: dict[str, Any] = json.loads(answer.read_text())
        output = _text(printed)
    if report.keys() != {f.name for f in fields(Probe)} - _FROM_OUTSIDE:
        return Probe(error="the import keeps from telling what it does", ended=True)
    found_out: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in report.items()
    }
    return Probe(**found_out, printed=output)


def _run(
    arguments: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], budget: float
) -> int | None:
    """As `ForkServer.run`, in a new interpreter."""
    program = tied(f"{__package__}.probe_child", *arguments, stdout=stdout, stderr=stderr)
    with program as process:
        ended = ends(process, budget)
    return process.returncode if ended else None


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace")
