"""Devices by CUDA_VISIBLE_DEVICES: logical, visible and physical."""

from __future__ import annotations

import pytest

from framework_cuda.devices import visible_devices
from framework_cuda.nvml import opened
from platforms.cuda.tests.fake_nvml import FakeCard, FakeNvml

UUIDS = (
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
    "GPU-89aa0000-0000-0000-0000-000000000000",
    "GPU-77777777-0000-0000-0000-000000000000",
)
PARTS = (
    ("MIG-11111111-aaaa-5555-0000-000000000000", 1, 0),
    None,
    ("MIG-12222222-bbbb-5555-0000-000000000000", 2, 0),
)


def seen(variable: str | None, *, mig: bool = False):
    """Three cards, the last in MIG mode."""
    fakes = [FakeCard(uuid) for uuid in UUIDS]
    fakes[2].mig = list(PARTS) if mig else None
    with opened(FakeNvml(fakes)) as nvml:
        cards = nvml.cards()
    return visible_devices(cards, {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable})


def places(found) -> list[tuple[int, str, int]]:
    return [(d.logical, d.visible, d.physical) for d in found.devices]


def test_without_the_variable_all_are_seen() -> None:
    assert places(seen(None)) == [(0, "0", 0), (1, "1", 1), (2, "2", 2)]


@pytest.mark.parametrize("variable", ["", " ", "-1", "-1,0", "NoDevFiles"])
def test_the_variable_can_hide_all(variable: str) -> None:
    found = seen(variable)
    assert found.hidden
    assert not found.devices


def test_the_order_is_that_of_the_variable() -> None:
    assert places(seen("2, 0")) == [(0, "2", 2), (1, "0", 0)]


@pytest.mark.parametrize(
    ("variable", "physical", "why"),
    [
        ("0,2,-1,1", [0, 2], "'-1' is neither"),
        ("1,3,0", [1], "'3' is no card: there are 3"),
        ("0,x", [0], "'x' is neither an index nor a UUID"),
        ("", [], None),
        ("0,,1", [0], "'' is neither"),
        ("GPU-89", [], "several cards"),
        ("GPU-5", [], "no card"),
        ("MIG-1", [], "several MIG"),
        ("MIG-3", [], "names no MIG"),
        ("1,0,1", [], "names a device that an entry before names"),
        (f"0,{UUIDS[0]}", [], "names a device that an entry before names"),
        ("99999999999999999999", [], "neither an index"),
    ],
)
def test_an_entry_that_names_nothing_ends_the_list(variable, physical, why) -> None:
    found = seen(variable, mig=True)
    assert [device.physical for device in found.devices] == physical
    assert (found.ended is None) if why is None else (why in found.ended)


def test_beginnings_of_uuids_will_do() -> None:
    assert places(seen("GPU-89aa,GPU-8932f937")) == [(0, "GPU-89aa", 1), (1, "GPU-8932f937", 0)]
    assert [device.uuid for device in seen(UUIDS[1]).devices] == [UUIDS[1]]


@pytest.mark.parametrize(
    ("variable", "uuid"),
    [
        (None, PARTS[0][0]),  # of a card in MIG mode the first is seen
        ("0,1,2", PARTS[0][0]),
        ("0,1," + UUIDS[2], PARTS[0][0]),
        ("0,1," + PARTS[2][0], PARTS[2][0]),
        ("0,1,MIG-12", PARTS[2][0]),
        (f"0,1,MIG-{UUIDS[2]}/2/0", PARTS[2][0]),
    ],
)
def test_parts_of_cards_are_devices(variable, uuid) -> None:
    found = seen(variable, mig=True)
    assert [device.physical for device in found.devices] == [0, 1, 2]
    assert found.devices[2].uuid == uuid


def test_two_parts_of_one_card_are_two_devices() -> None:
    found = seen("MIG-12,MIG-11", mig=True)
    assert [(d.logical, d.instance.index) for d in found.devices] == [(0, 2), (1, 0)]
