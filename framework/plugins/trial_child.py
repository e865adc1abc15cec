"""The other side of `framework.plugins.trial`: a program that imports and tells."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from typing import Any

from framework.errors import FrameworkError
from framework.plugins.agreeing import attributes_of
from framework.plugins.kinds import Kind, find_kind
from framework.plugins.loading import contract_of, load_class
from framework.plugins.records import Record
from framework.plugins.tied import orders
from framework.plugins.trial import top_of
from framework.plugins.watch import heard, loaded_since
from framework.shown import shown

_NEVER = 1e6
"""Seconds after which the watchdog of the import itself would speak; the parent watches."""
_PLAIN = (str, int, float, bool, tuple, list, frozenset, set)


class _Teller:
    """Sends one JSON line per message to the parent."""

    def __init__(self, channel: int) -> None:
        self._channel = channel

    def tell(self, place: int, **message: Any) -> None:
        # No msgspec: it takes neither half of a surrogate pair nor numbers of any size.
        line = json.dumps({"place": place, **message}, default=_listed)
        data = memoryview(line.encode() + b"\n")
        while data:
            data = data[os.write(self._channel, data) :]


def _listed(value: object) -> object:
    return list(value) if isinstance(value, frozenset | set) else shown(value)


def main(channel: int) -> None:
    """Import what stdin says, until one loads a heavy library that would hide another's."""
    os.set_inheritable(channel, False)
    rows, kinds = orders()
    records = [
        Record(
            kind=kind, name=name, distribution=owner, version=None, value=value, facts=facts,
            adapted=adapted,
        )
        for kind, name, owner, value, facts, adapted in rows
    ]  # fmt: skip
    for kind in {record.kind for record in records}:
        contract_of(find_kind(kind, kinds))
    teller = _Teller(channel)
    for place, record in enumerate(records):
        teller.tell(place, starts=True)
        heavy = _try(record, find_kind(record.kind, kinds), place, teller)
        following = records[place + 1] if place + 1 < len(records) else None
        if heavy or following is None or top_of(following.value) != top_of(record.value):
            _forget(record, place, teller)
        if heavy:
            break
    os._exit(0)


def _try(record: Record, kind: Kind, place: int, teller: _Teller) -> str:
    """Import one and tell; returns the heavy libraries that it loaded."""
    there = set(sys.modules)
    uncaught: list[str] = []
    message: dict[str, Any] = {}
    with heard(uncaught.append):
        started = time.perf_counter()
        try:
            cls = load_class(record, kind, _NEVER)
            message["attributes"] = attributes_of(cls)
        except FrameworkError as error:
            found = None if error.found is None else str(error.found)
            message.update(error=error.message, found=found, mend=error.mend)
        seconds = time.perf_counter() - started
        gc.collect()
    heavy = loaded_since(there)
    teller.tell(place, seconds=seconds, heavy=heavy, uncaught=uncaught, **message)
    return heavy


def _forget(record: Record, place: int, teller: _Teller) -> None:
    """Take down what was imported, which is when an object that lives in a module ends."""
    top = top_of(record.value)
    if top == "framework":
        return
    record.cls = None
    uncaught: list[str] = []
    teller.tell(place, starts=True)
    with heard(uncaught.append):
        for name in [name for name in sys.modules if name.partition(".")[0] == top]:
            del sys.modules[name]
        gc.collect()
    teller.tell(place, uncaught=uncaught)


if __name__ == "__main__":
    main(int(sys.argv[1]))
