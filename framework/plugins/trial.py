"""Import plugins in a process of their own and tell what each import does.

One child imports one plugin after the other and says which is next, so that a plugin that
hangs or ends the process is known by name; a new child goes on behind it.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from framework.plugins.kinds import Kind
from framework.plugins.records import Record
from framework.plugins.tied import LOOK, ending, ends, order, tied

END_SECONDS = 10.0
"""For the end of a process that has closed all its files."""
READY_SECONDS = 60.0
"""For the child's interpreter and the contracts: neither is the fault of a plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the import of one plugin did.

    seconds: how long it took; with `hung`, how long it was waited for.  ended: how it ended the
    process ("exit code 3", "SIGSEGV"), or None.  error: the message of a failed import or of a
    class that does not fit; found, mend: of that.  spoiled: what went wrong behind the imports of
    others in one process, and does not by itself; behind: these others, by key, or the one whose
    import is enough.  heavy:
    libraries that it loaded.  uncaught: errors that nobody can catch.  attributes: plain values
    of the class, by name.
    """

    seconds: float = 0.0
    hung: bool = False
    ended: str | None = None
    error: str | None = None
    found: str | None = None
    mend: str | None = None
    spoiled: str | None = None
    behind: tuple[str, ...] = ()
    heavy: str = ""
    uncaught: tuple[str, ...] = ()
    attributes: Mapping[str, Any] | None = None


def try_imports(
    records: Sequence[Record], kinds: Sequence[Kind], *, budget: float = 10.0
) -> list[Trial]:
    """One Trial per record.  budget: seconds after which an import counts as hung; the process
    is then killed.  What plugins print is lost."""
    # Plugins of one package together: it is taken down once, behind the last of them.
    order = sorted(range(len(records)), key=lambda n: top_of(records[n].value))
    trials: dict[int, Trial] = {}
    while left := [n for n in order if n not in trials]:
        found = _Child([records[n] for n in left], kinds, budget).run()
        for place, trial in found.items():
            if place and (trial.error or trial.ended):
                before = [records[n] for n in left[:place]]
                trial = _alone(records[left[place]], kinds, budget, trial, before)
            trials[left[place]] = trial
            if trial.spoiled is not None:
                break  # what follows was imported behind the same; a new process is without it
    return [trials[n] for n in range(len(records))]


def _alone(
    record: Record, kinds: Sequence[Kind], budget: float, trial: Trial, before: Sequence[Record]
) -> Trial:
    """Try one again that failed behind others: what they did to the process is not its fault."""
    alone = _Child([record], kinds, budget).run()[0]
    if alone.error or alone.ended or alone.hung:
        return alone
    how = f"{trial.error} ({trial.found})" if trial.error else f"the process ends, {trial.ended}"
    behind = _culprit(record, kinds, budget, before)
    return replace(alone, spoiled=how, behind=tuple(each.key for each in behind))


def _culprit(
    record: Record, kinds: Sequence[Kind], budget: float, before: Sequence[Record]
) -> Sequence[Record]:
    """The one of `before` behind which the import fails; all of them where it takes several, or
    where it goes well another time."""

    def fails(others: Sequence[Record]) -> bool:
        trial = _Child([*others, record], kinds, budget).run().get(len(others), Trial())
        return bool(trial.error or trial.ended)

    works, broken = 0, len(before)
    while broken - works > 1:
        middle = (works + broken) // 2
        if fails(before[:middle]):
            broken = middle
        else:
            works = middle
    one = before[broken - 1 : broken]
    return one if fails(one) else before


def top_of(value: str) -> str:
    """The top-level package of "module:attr"."""
    return value.partition(":")[0].partition(".")[0].strip()


class _Child:
    """One process; `run` gives the trials that it came to, at least one."""

    def __init__(self, records: Sequence[Record], kinds: Sequence[Kind], budget: float) -> None:
        self._records, self._kinds, self._budget = records, kinds, budget
        self._trials: dict[int, Trial] = {}
        self._current: int | None = None
        self._closed = False
        self._started = time.monotonic()

    def run(self) -> dict[int, Trial]:
        read, write = os.pipe()
        with (
            os.fdopen(read, "rb", buffering=0) as messages,
            tied(
                "framework.plugins.trial_child",
                str(write),
                pass_fds=(write,),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process,
        ):
            os.close(write)
            order(process, (self._rows(), tuple(self._kinds)))
            hung = self._listen(process, messages.fileno())
        self._end(hung, process.returncode)
        return self._trials

    def _rows(self) -> list[tuple[Any, ...]]:
        return [
            (r.kind, r.name, r.distribution, r.value, r.facts, r.adapted) for r in self._records
        ]

    def _listen(self, process: subprocess.Popen[bytes], messages: int) -> bool:
        """Take messages until the child is done; True if it hangs."""
        data = b""
        limit = READY_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(messages, selectors.EVENT_READ)
            while True:
                # Whoever a plugin started may keep the pipe open: its end is not the child's.
                ended = process.poll() is not None
                left = self._started + limit - time.monotonic()
                if selector.select(0 if ended else min(LOOK, max(left, 0))):
                    part = os.read(messages, 1 << 16)
                    if not part:
                        self._closed = not ends(process, END_SECONDS)
                        return False
                    *lines, data = (data + part).split(b"\n")
                    for line in lines:
                        self._take(json.loads(line))
                        self._started, limit = time.monotonic(), self._budget
                elif ended:
                    return False
                elif left <= 0:
                    return True

    def _take(self, message: dict[str, Any]) -> None:
        place = message.pop("place")
        if message.pop("starts", False):
            self._current = place
            return
        self._current = None
        old = self._trials.get(place)
        if old is not None:  # what came to light when it was forgotten again
            message = {**_fields(old), "uncaught": [*old.uncaught, *message["uncaught"]]}
        message["uncaught"] = tuple(message.get("uncaught", ()))
        self._trials[place] = Trial(**message)

    def _end(self, hung: bool, code: int) -> None:
        if self._current is not None and hung:
            self._trials[self._current] = Trial(hung=True, seconds=self._budget)
        elif self._current is not None:
            how = "it closes files that are not its own" if self._closed else ending(code)
            self._trials[self._current] = Trial(ended=how)
        elif not self._trials:
            raise RuntimeError(
                f"a process that imports plugins could not be started: {ending(code)}"
            )


def _fields(trial: Trial) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in Trial.__slots__}
