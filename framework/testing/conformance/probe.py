"""Import a plugin in a process of its own and see what that does to it.

An import can end a process, hang, start threads, load libraries of gigabytes, open
connections and patch what others rely on.  None of this may happen to the process that asks.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from framework.plugins.tied import ending, ends, tied
from framework.plugins.watch import HEAVY as HEAVY

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
    path: Sequence[str] | None = None,
    exercise: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Probe:
    """Import "module:attr" in a fresh interpreter, at most `budget` seconds.

    path: its sys.path, by default that of this process.
    exercise: "module:function"; the class is also made, with `options`, and the instance given
    to the function; then `seconds` are those of the function, and all else is of both.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, printed, said = (Path(folder) / name for name in ("answer.json", "out", "err"))
        arguments = [value, str(answer)]
        if exercise is not None:
            arguments += [exercise, json.dumps(dict(options or {}))]
        # Files and no pipes: whoever it starts may keep a pipe open.
        with (
            printed.open("wb") as out,
            said.open("wb") as err,
            tied(
                f"{__package__}.probe_child",
                *arguments,
                path=sys.path if path is None else path,
                stdout=out,
                stderr=err,
            ) as process,
        ):
            if not ends(process, budget):
                return Probe(
                    error=f"the import did not end within {budget:g} s",
                    timed_out=True,
                    seconds=budget,
                )
        if not answer.exists():
            lines = _text(said).strip().splitlines()
            last = f"; it last wrote {lines[-1]!r:.200}" if lines else ""
            return Probe(
                error=f"the import ended the process with {ending(process.returncode)}{last}",
                ended=True,
            )
        report: dict[str, Any] = json.loads(answer.read_text())
        output = _text(printed)
    if report.keys() != {f.name for f in fields(Probe)} - _FROM_OUTSIDE:
        return Probe(error="the import keeps from telling what it does", ended=True)
    found_out: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in report.items()
    }
    return Probe(**found_out, printed=output)


def _text(file: Path) -> str:
    return file.read_text("utf-8", "replace")
