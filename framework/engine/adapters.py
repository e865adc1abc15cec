"""Adapters by name: what users load, and what becomes of a name in a request.

Each load has an id of its own.  It is in the hashes of pages, so that one name that is loaded again
with other weights finds nothing of before.  Which are in memory, a participant of the core decides;
every request tells it where its adapter lies, so that a core which was started anew knows as much
as the one before.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framework.contracts.sampling_checks import invalid
from framework.errors import ConfigError, InputError, UnsupportedError
from framework.plugins.near import did_you_mean
from framework.shown import is_whole, shown

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.participant import SchedulerParticipant

LONGEST_NAME = 256
"""Characters; it stands in every request, in messages, and among the models of a server."""
LOADING, FAILED = "loading", "failed"
INSTALL = 'pip install "framework[lora]"'
POLL_SECONDS = 0.002
"""Between two looks at an adapter that is being read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAdapter:
    """name: what requests call it.  root: its folder.  number: its load id.  pinned: it stays in
    memory without requests."""

    name: str
    root: str
    number: int
    pinned: bool = False


class AdapterDirectory:
    """participant: whose they are; None: nobody here serves any.  taken: names that are models.
    May be used by several threads.

    served_by: the participant.
    """

    def __init__(self, participant: str | None, taken: Iterable[str] = ()) -> None:
        self.served_by, self._taken = participant, frozenset(taken)
        self._entries: dict[str, LoadedAdapter] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def serving(self) -> frozenset[str]:
        """`served_by`, if there is one."""
        return frozenset(() if self.served_by is None else (self.served_by,))

    @property
    def participant(self) -> str:
        """`served_by`.  Raises UnsupportedError without one."""
        return self._require()

    def _require(self) -> str:
        if self.served_by is None:
            raise UnsupportedError(
                "adapters are not served",
                expected="an engine with enable_lora",
                found="enable_lora=False",
                mend=f"start it with enable_lora=True; {INSTALL} if the plugin is missing",
            )
        return self.served_by

    def __iter__(self) -> Iterator[LoadedAdapter]:
        return iter(tuple(self._entries.values()))

    def named(self, name: str | None) -> tuple[int | None, Mapping[str, bytes]]:
        """The load id that a request gets, and what the participant gets of it.  Raises as
        `find`."""
        if name is None:
            return None, {}
        entry = self.find(name)
        return entry.number, self.extras(entry)

    def find(self, name: object) -> LoadedAdapter:
        """Raises InputError for a name that is not loaded, UnsupportedError if none can be."""
        self._require()
        entry = self._entries.get(name) if isinstance(name, str) else None
        if entry is None:
            known = list(self._entries)
            raise InputError(
                f"there is no adapter {shown(name):.80}{did_you_mean(str(name), known)}",
                parameter="lora_request",
                expected=f"the name of a loaded adapter: {', '.join(known) or 'none is'}",
                found=f"{shown(name):.80}",
                mend="load it with load_adapter(name, folder)",
            )
        return entry

    def begin(self, name: object, root: object, *, pinned: bool, again: bool) -> LoadedAdapter:
        """A load that has a number and is not known yet.  again: the name may be loaded.  Raises
        InputError, UnsupportedError."""
        self._require()
        if not isinstance(name, str) or not name.strip() or not is_whole(name):
            raise invalid("lora_name", "a name, text that is not empty", name)
        if len(name) > LONGEST_NAME or not name.isprintable():
            wanted = f"a name that can be printed, of at most {LONGEST_NAME} characters"
            raise invalid("lora_name", wanted, name)
        if name in self._taken:
            raise invalid("lora_name", "a name that no model has", name)
        if isinstance(root, os.PathLike):
            root = os.fspath(root)
        if not isinstance(root, str) or not root or "\0" in root:
            raise invalid("lora_path", "a folder of this machine", root)
        self._check_new(name, again)
        whole = str(Path(root).absolute())
        return LoadedAdapter(name=name, root=whole, number=next(self._numbers), pinned=pinned)

    def _check_new(self, name: str, again: bool) -> None:
        if name in self._entries and not again:
            raise InputError(
                f"there is an adapter {shown(name):.80} already",
                parameter="lora_name",
                expected="a new name, or load_inplace=True to put another in its place",
                found=self._entries[name].root,
                mend="unload it first, or give load_inplace",
            )

    def add(self, entry: LoadedAdapter, *, again: bool) -> LoadedAdapter | None:
        """It is ready.  Returns the one in whose place it comes.  Raises InputError if another of
        this name was ready first, unless `again`."""
        with self._lock:
            self._check_new(entry.name, again)
            before = self._entries.get(entry.name)
            self._entries[entry.name] = entry
        return before

    def remove(self, name: object) -> LoadedAdapter:
        """Raises as `find`."""
        with self._lock:
            entry = self.find(name)
            del self._entries[entry.name]
        return entry

    def pin(self, name: object, pinned: object) -> LoadedAdapter:
        """Raises as `find`."""
        if not isinstance(pinned, bool):
            raise invalid("pinned", "True or False", pinned)
        with self._lock:
            entry = replace(self.find(name), pinned=pinned)
            self._entries[entry.name] = entry
        return entry

    def extras(self, entry: LoadedAdapter) -> Mapping[str, bytes]:
        """See SchedulerParticipant.serves_adapters."""
        import msgspec

        told = {"root": entry.root, "pinned": entry.pinned}
        return {self.participant: msgspec.msgpack.encode(told)}


NO_ADAPTERS = AdapterDirectory(None)
"""Where none are served; it never holds any."""


def load_arguments(entry: LoadedAdapter) -> dict[str, Any]:
    """Of the participant's operation "load"."""
    return {"id": entry.number, "root": entry.root, "pinned": entry.pinned}


def check_loaded(entry: LoadedAdapter, told: Mapping[str, Any]) -> None:
    """Raises InputError for an adapter that could not be loaded, with the reason."""
    if told["state"] != "ready":
        raise InputError(
            f"adapter {shown(entry.name):.80} cannot be loaded: {told.get('reason', 'it is gone')}",
            parameter="lora_path",
        )


def directory_of(
    config: EngineConfig, participants: Mapping[str, SchedulerParticipant]
) -> AdapterDirectory:
    """participants: the active ones; the first that serves adapters does.  Raises ConfigError if
    there is none, and adapters are to be served."""
    if not config.adapters.enable_lora:
        return NO_ADAPTERS
    serving = [name for name, each in participants.items() if each.serves_adapters]
    if not serving:
        raise ConfigError(
            "enable_lora would do nothing: no active scheduler participant serves adapters",
            expected="a participant that serves adapters, and has a half in the front end",
            found=", ".join(participants) or "no participants",
            mend=INSTALL,
        )
    return AdapterDirectory(serving[0], config.model.served_model_names or (config.model.model,))
