"""Values in messages: short, in one line, and never a fault of their own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from framework.contracts.sampling import SamplingParams
from framework.errors import InputError
from framework.halt import Halt
from framework.plugins.blame import told
from framework.shown import MOST, shown


def raising(error):
    class Value:
        def __repr__(self):
            raise error

    return Value()


@pytest.mark.parametrize("error", [ValueError("no"), RecursionError(), SystemExit(3)])
def test_a_value_that_cannot_be_shown_is_told_by_its_class(error):
    name = f"a Value whose repr fails ({type(error).__name__})"
    assert shown(raising(error)) == name
    assert shown([raising(error), 1]) == f"[{name}, 1]"
    assert shown({"key": raising(error)}) == f"{{'key': {name}}}"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Halt()])
def test_what_comes_from_outside_passes(error):
    """Also while a value is shown, or an error told."""
    with pytest.raises(type(error)):
        shown(raising(error))

    class Mute(Exception):
        def __str__(self):
            raise error

    with pytest.raises(type(error)):
        told(Mute())


def test_an_error_whose_text_ends_the_process_is_told_by_its_class():
    class Mute(Exception):
        def __str__(self):
            sys.exit(3)

    assert told(Mute()) == "Mute, whose text fails (SystemExit)"


@pytest.mark.parametrize(
    "value",
    [
        "y" * 10_000,
        b"y" * 10_000,
        bytearray(10_000),
        10**5000,
        [10**5000],
        list(range(10_000)),
        dict.fromkeys(range(100), "y" * 1000),
        np.arange(10_000).reshape(100, 100),
        type("Long", (), {"__repr__": lambda self: "y" * 10_000})(),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("most", [80, MOST])
def test_what_is_long_is_cut(value, most):
    text = shown(value, most)
    assert len(text) <= most + len("...")
    assert "\n" not in text


def test_what_is_deep_is_cut():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert shown(deep) == "[[[[...]]]]"


def test_a_value_gives_a_terminal_no_orders():
    value = type("Red", (), {"__repr__": lambda self: "\x1b[31mred\x07 \udcff\n\tnext"})()
    assert shown(value) == "\\x1b[31mred\\x07 \\udcff next"
    assert shown("\x1b[31m\udcff") == "'\\x1b[31m\\udcff'"


def test_a_class_that_is_called_as_a_built_in_one_is_not_taken_for_it():
    """It has no items."""
    made = type("list", (), {"__repr__": lambda self: "mine"})()
    assert shown(made) == "mine"


@pytest.mark.parametrize("value", [None, True, -3, 0.5, "a", b"a", [1, "b"], {"k": (1,)}, {3}])
def test_what_is_short_is_shown_whole(value):
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    "found",
    [raising(ValueError()), 10**5000, "\x1b[31m" * 1000],
    ids=lambda value: type(value).__name__,
)
def test_parameters_of_requests_are_shown_by_the_same_rule(found):
    with pytest.raises(InputError) as caught:
        SamplingParams(temperature=found)
    assert caught.value.found == shown(found, 80)
