"""`scheduler_participant:lora`: requests wait until their adapter is there and has a turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from framework.contracts.participant import (
    READY,
    Admission,
    EngineContext,
    Hold,
    Refuse,
    SchedulerParticipant,
    Wait,
)
from framework.errors import InputError, UnsupportedError
from framework.shown import shown
from framework_lora.shelf import ABSENT, FAILED, LOADING, Kept, Shelf
from framework_lora.turns import Turns

if TYPE_CHECKING:
    from framework.core.request import Request

NAME = "lora"


class LoraAdapters(SchedulerParticipant):
    """Attends the requests that name an adapter; inert unless the operator allows some.

    control: load {"id", "root", "pinned"} and state {"id"} tell what `ModelRunner.control` tells
    of adapters; unload {"id"}; pin {"id", "pinned"}; list {} tells "adapters", one mapping each.
    """

    serves_adapters: ClassVar[bool] = True

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self._shelf: Shelf | None = None
        self._turns: Turns | None = None
        self._wants: dict[str, int] = {}

    def start(self, context: EngineContext) -> None:
        if context.adapters is not None and context.control is not None:
            self._shelf = Shelf(context.adapters, context.control)
            self._turns = Turns(context.adapters.in_step)

    def admit(self, request: Request) -> Admission:
        number, (shelf, turns) = request.input.adapter, self._parts()
        if number is None:
            return Refuse("it names no adapter")
        asked = _decoded(request.input.extras[NAME])
        kept = shelf.want(number, asked["root"], pinned=asked["pinned"])
        if kept is None:
            return Wait("its adapter has no place in memory", shelf.room)
        if kept.state == FAILED:
            reason = f"its adapter cannot be used: {kept.reason}"
            self._give_up(kept, request.id)
            return Refuse(reason)
        shelf.use(kept, request.id)
        self._wants[request.id] = number
        if kept.state == LOADING:
            return Wait("its adapter is being loaded", lambda: not _loading(shelf, number))
        if turns.take(number, request.id, request.arrival):
            return READY
        wake = turns.wake(number, request.arrival)
        return Wait("other adapters have their turn", wake)

    def release(self, request: Request) -> Hold | None:
        number = self._wants.pop(request.id, None)
        if number is not None and self._shelf is not None and self._turns is not None:
            self._turns.leave(number, request.id)
            self._shelf.leave(number, request.id)
        return None

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        shelf, _ = self._parts()
        match op:
            case "load":
                kept = shelf.want(arguments["id"], arguments["root"], pinned=False)
                if kept is None:
                    raise InputError(
                        "no adapter can make place for another one: all are in use or pinned",
                        parameter="adapter",
                        expected=f"at most max_cpu_loras, {shelf.limits.kept}, at one time",
                        mend="try again when requests have ended, unpin one, or raise "
                        "max_cpu_loras",
                    )
                if arguments["pinned"]:
                    shelf.pin(kept.number, True)
                return _told(kept)
            case "state":
                found = shelf.find(arguments["id"])
                told = {"state": ABSENT} if found is None else _told(found)
                if found is not None and found.state == FAILED and not found.users:
                    shelf.forget(found)
                return told
            case "unload":
                shelf.unload(arguments["id"])
                return {}
            case "pin":
                shelf.pin(arguments["id"], arguments["pinned"])
                return {}
            case "list":
                return {"adapters": [{"id": k.number, **_told(k)} for k in shelf]}
        raise UnsupportedError(
            f"the participant {NAME!r} has no operation {op!r:.40}",
            expected="load, state, unload, pin or list",
            found=shown(op),
        )

    def _parts(self) -> tuple[Shelf, Turns]:
        if self._shelf is None or self._turns is None:
            raise UnsupportedError(
                "adapters are not served",
                expected="an engine that was told to serve them",
                found="enable_lora=False",
                mend="set enable_lora",
            )
        return self._shelf, self._turns

    def _give_up(self, kept: Kept, request: str) -> None:
        """What failed is forgotten, so that the next request tries again: the files may have been
        mended."""
        shelf, _ = self._parts()
        kept.users.discard(request)
        shelf.forget(kept)


def _loading(shelf: Shelf, number: int) -> bool:
    kept = shelf.find(number)
    return kept is not None and kept.state == LOADING


def _told(kept: Kept) -> dict[str, Any]:
    told = {"state": kept.state, "pinned": kept.pinned, "users": len(kept.users), **kept.told}
    return {**told, "reason": kept.reason} if kept.reason else told


def _decoded(data: bytes) -> Mapping[str, Any]:
    import msgspec

    decoded: Mapping[str, Any] = msgspec.msgpack.decode(data)
    return decoded
