"""Which adapters are in memory: at most so many, those that were used last.

    absent -> loading -> ready -> absent       evicted for another, or unloaded
                      -> failed                told to whoever asked, and forgotten

An adapter with users stays: one that any request waits for or is computed with.  So does a pinned
one.  Where all stay, further adapters wait for a place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from framework.contracts.lora import AdapterLimits
from framework.errors import InputError

Control = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
OP = "adapters"
LOADING, READY, FAILED, ABSENT = "loading", "ready", "failed", "absent"


@dataclass(slots=True, kw_only=True)
class Kept:
    """One adapter.  users: requests.  used: rises with each use of any.  leaving: it goes with its
    last user.  told: what the runner says of it beside its state."""

    number: int
    root: str
    pinned: bool
    state: str = LOADING
    reason: str = ""
    users: set[str] = field(default_factory=set)
    used: int = 0
    leaving: bool = False
    told: Mapping[str, Any] = field(default_factory=dict)


class Shelf:
    """control: of the runner, which reads the files and holds what they become."""

    def __init__(self, limits: AdapterLimits, control: Control) -> None:
        self.limits, self._control = limits, control
        self._kept: dict[int, Kept] = {}
        self._digests: dict[int, bytes] = {}
        self._gone: set[int] = set()
        self._pins: dict[int, bool] = {}  # also of those that are not in memory
        self._uses = 0

    def __iter__(self) -> Any:
        return iter(self._kept.values())

    def find(self, number: int) -> Kept | None:
        """As it is now."""
        kept = self._kept.get(number)
        return None if kept is None else self._look(kept)

    def want(self, number: int, root: str, *, pinned: bool = False) -> Kept | None:
        """Begin to load it, if it is not there; None while there is no place for it.  pinned: what
        counts until `pin` says otherwise."""
        kept = self._kept.get(number)
        if kept is None:
            if not self._room():
                return None
            stays = self._stays(number, pinned)
            kept = self._kept[number] = Kept(number=number, root=root, pinned=stays)
            kept.leaving = number in self._gone
            self._control(OP, {"action": "load", "id": number, "root": root})
        return self._look(kept)

    def use(self, kept: Kept, request: str) -> None:
        """A request waits for it, or is computed with it, until `leave`."""
        self._uses += 1
        kept.used = self._uses
        kept.users.add(request)

    def leave(self, number: int, request: str) -> None:
        """That request needs it no more."""
        kept = self._kept.get(number)
        if kept is not None:
            kept.users.discard(request)
            self._if_leaving(kept)

    def pin(self, number: int, pinned: bool) -> None:
        """Whether it stays without users, now or when it comes back.  Raises InputError if nothing
        else could be loaded."""
        if number in self._gone or self._pins.get(number, False) == pinned:
            return
        if pinned and not self._may_pin():
            raise InputError(
                "no place would be left for adapters that are not pinned",
                parameter="pinned",
                expected=f"fewer pinned ones than max_cpu_loras, {self.limits.kept}",
                found=f"{sum(self._pins.values())} are pinned",
                mend="unpin one, or raise max_cpu_loras",
            )
        self._pins[number] = pinned
        kept = self._kept.get(number)
        if kept is not None:
            kept.pinned = pinned

    def unload(self, number: int) -> None:
        """For good: it goes with its last user.  Requests that were accepted before and come only
        now are served, too: it is read again for them if need be."""
        self._gone.add(number)
        self._pins.pop(number, None)
        kept = self._kept.get(number)
        if kept is not None:
            kept.leaving = True
            self._if_leaving(kept)

    def forget(self, kept: Kept) -> None:
        """One that failed, or must go."""
        if self._kept.pop(kept.number, None) is not None:
            self._control(OP, {"action": "drop", "id": kept.number})

    def room(self) -> bool:
        """Whether one more has a place, or can be given one."""
        return len(self._kept) < self.limits.kept or self._idle() is not None

    def _stays(self, number: int, pinned: bool) -> bool:
        if number in self._gone:
            return False
        return self._pins.setdefault(number, pinned and self._may_pin())

    def _may_pin(self) -> bool:
        """One place is left for those that are not: their requests would wait for ever."""
        return sum(self._pins.values()) + 1 < self.limits.kept

    def _if_leaving(self, kept: Kept) -> None:
        if kept.leaving and not kept.users:
            self.forget(kept)

    def _room(self) -> bool:
        if len(self._kept) < self.limits.kept:
            return True
        idle = self._idle()
        if idle is not None:
            self.forget(idle)
        return idle is not None

    def _idle(self) -> Kept | None:
        """Of those that may go, the one that was used least lately."""
        may_go = [k for k in self._kept.values() if not (k.users or k.pinned or k.state == LOADING)]
        return min(may_go, key=lambda kept: kept.used, default=None)

    def _look(self, kept: Kept) -> Kept:
        if kept.state != LOADING:
            return kept
        told = self._control(OP, {"action": "state", "id": kept.number})
        kept.state = told["state"]
        if kept.state == READY:
            before = self._digests.setdefault(kept.number, told["digest"])
            kept.told = {name: told[name] for name in ("rank", "num_bytes")}
            if before != told["digest"]:
                # Pages that were computed with the old ones are found under its load id.
                kept.state = FAILED
                kept.reason = (
                    f"the files in {kept.root} are not those that were loaded under this name; "
                    "load it again"
                )
        elif kept.state != LOADING:
            kept.state, kept.reason = FAILED, str(told.get("reason", "the runner lost it"))
        return kept
