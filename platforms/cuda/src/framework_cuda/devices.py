"""Devices in three name spaces, by CUDA_VISIBLE_DEVICES.

    logical    0, 1, ...       what torch calls cuda:0, cuda:1
    visible    "2", "GPU-8f"   what the variable says in that place
    physical   0, 1, ...       NVML's index of the card, as nvidia-smi shows it

The rules are those of the CUDA programming guide: the order is that of the variable; an entry that
names nothing ends the list; beginnings of UUIDs will do where they are unique; of a card in MIG
mode one instance is seen.  Two entries for one device leave none, as in the CUDA driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from framework_cuda.nvml import Card, Instance

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """logical, visible: see above.  card: the physical one.  instance: a part of it, or None."""

    logical: int
    visible: str
    card: Card
    instance: Instance | None = None

    @property
    def physical(self) -> int:
        return self.card.index

    @property
    def uuid(self) -> str:
        return self.card.uuid if self.instance is None else self.instance.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """devices: by logical number.  hidden: the operator wants none to be seen.  ended: why the list
    of devices ends before the variable does, or None."""

    devices: tuple[Device, ...] = ()
    hidden: bool = False
    ended: str | None = None


def visible_devices(cards: Sequence[Card], environment: Mapping[str, str]) -> Visible:
    """What CUDA would see of the cards."""
    said = environment.get(VARIABLE)
    if said is None:
        every = [found for card in cards if (found := _whole(card)) is not None]
        return Visible(
            devices=tuple(
                Device(logical=n, visible=str(card.index), card=card, instance=instance)
                for n, (card, instance) in enumerate(every)
            )
        )
    entries = [entry.strip() for entry in said.split(",")]
    if not said.strip() or entries[0] in ("-1", "NoDevFiles"):
        return Visible(hidden=True)
    devices: list[Device] = []
    for entry in entries:
        found = _named(entry, cards)
        if isinstance(found, str):
            return Visible(devices=tuple(devices), ended=f"{entry!r} {found}")
        card, instance = found
        if any(d.card == card and d.instance == instance for d in devices):
            return Visible(ended=f"{entry!r} names a device that an entry before names, too")
        devices.append(Device(logical=len(devices), visible=entry, card=card, instance=instance))
    return Visible(devices=tuple(devices))


def _whole(card: Card) -> tuple[Card, Instance | None] | None:
    """A card as CUDA sees it: in MIG mode its first instance, if there is any."""
    if card.instances is None:
        return card, None
    return (card, card.instances[0]) if card.instances else None


def _named(entry: str, cards: Sequence[Card]) -> tuple[Card, Instance | None] | str:
    """What an entry names, or why it names nothing."""
    if re.fullmatch("[0-9]{1,9}", entry):
        if int(entry) >= len(cards):
            return f"is no card: there are {len(cards)}"
        return _whole(cards[int(entry)]) or "is in MIG mode and has no instance"
    if entry.startswith("MIG-"):
        return _instance(entry, cards)
    if entry.startswith("GPU-"):
        found = [card for card in cards if card.uuid.startswith(entry)]
        if len(found) == 1:
            return _whole(found[0]) or "is in MIG mode and has no instance"
        return "begins the UUID of no card" if not found else "begins the UUID of several cards"
    return "is neither an index nor a UUID"


def _instance(entry: str, cards: Sequence[Card]) -> tuple[Card, Instance] | str:
    """MIG-<UUID>, or, of old drivers, MIG-GPU-<UUID of the card>/<GPU instance>/<compute one>."""
    every = [(card, part) for card in cards for part in card.instances or ()]
    old = re.fullmatch("MIG-(GPU-[^/]+)/([0-9]+)/([0-9]+)", entry)
    if old is not None:
        uuid, gpu, compute = old[1], int(old[2]), int(old[3])
        found = [
            (card, part)
            for card, part in every
            if (card.uuid, part.gpu, part.compute) == (uuid, gpu, compute)
        ]
    else:
        found = [(card, part) for card, part in every if part.uuid.startswith(entry)]
    if len(found) == 1:
        return found[0]
    return "names no MIG instance" if not found else "begins the UUID of several MIG instances"
