"""What a plugin does wrong is told under its name and distribution."""

from __future__ import annotations

import pytest

from framework.contracts.base import Contract
from framework.errors import ConfigError, PluginError
from framework.plugins.blame import Halt, blaming, expect, unfit


@pytest.fixture
def plugin():
    made = Contract()
    made.plugin_id = "platform:fast@its-dist"
    return made


@pytest.mark.parametrize("error", [RuntimeError("boom"), SystemExit(3), BaseException("panic")])
def test_what_a_plugin_did_not_foresee_names_it(plugin, error):
    match = "platform:fast@its-dist failed while counting"
    with pytest.raises(PluginError, match=match) as caught, blaming(plugin, "counting"):
        raise error
    assert (caught.value.plugin, caught.value.distribution) == (plugin.plugin_id, "its-dist")
    assert caught.value.__cause__ is error


def test_errors_made_on_purpose_and_interruptions_pass(plugin):
    for error in (ConfigError("too small"), KeyboardInterrupt(), GeneratorExit(), Halt()):
        with pytest.raises(type(error)) as caught, blaming(plugin, "counting"):
            raise error
        assert caught.value is error


def test_of_a_long_text_the_beginning_is_told(plugin):
    words = r"ValueError: y{2000}\.\.\. \(20000 characters\)"
    with pytest.raises(PluginError, match=words) as caught, blaming(plugin, "doing it"):
        raise ValueError("y" * 20_000)
    assert len(str(caught.value)) < 3000


def test_a_text_gives_a_terminal_no_orders(plugin):
    """Nor does it hold what UTF-8 cannot carry; lines stay lines."""
    with pytest.raises(PluginError) as caught, blaming(plugin, "doing it"):
        raise ValueError("\x1b[31mred\x07 \udcff\n\tnext")
    assert "ValueError: \\x1b[31mred\\x07 \\udcff\n\tnext" in str(caught.value)


def test_an_answer_of_another_class_names_the_plugin_and_what_was_expected(plugin):
    assert expect(plugin, "count", 5, int) == 5
    with pytest.raises(PluginError, match="answered count with None") as caught:
        expect(plugin, "count", None, int)
    assert (caught.value.expected, caught.value.distribution) == ("int", "its-dist")
    assert unfit(plugin, "answered", "one", 2).plugin == plugin.plugin_id
