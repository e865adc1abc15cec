"""Options of every command that stand behind one."""

from __future__ import annotations

import re

import pytest
import typer
from typer.testing import CliRunner

from framework.cli.app import build_app
from framework.cli.commands import CommandCall, run_typer
from framework.cli.context import RootOptions
from framework.cli.fields import parse_fields
from framework.cli.misplaced import ROOT_FLAGS
from framework.errors import ConfigError

ABSENT = {"-v", "--version", "--verbose"}
"""Flags for which some commands have another meaning."""


def one_line(text):
    return " ".join(re.sub(r"[\u2500-\u257f]", " ", text).split())


def test_the_table_holds_all_of_them():
    command = typer.main.get_command(build_app())
    flags = {flag for parameter in command.params for flag in parameter.opts}
    usual = {"--help", "--install-completion", "--show-completion"}
    assert flags - usual == set(ROOT_FLAGS)
    takes = {
        flag for each in command.params if not each.is_flag and not each.count for flag in each.opts
    }
    assert takes - usual == {flag for flag, value in ROOT_FLAGS.items() if value}


@pytest.mark.parametrize("flag", sorted(set(ROOT_FLAGS) - ABSENT))
@pytest.mark.parametrize("command", ["bench core", "plugins list", "config"])
def test_a_command_says_where_they_stand(command, flag, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(build_app(), [*command.split(), flag, "x"])
    said = one_line(result.output)
    assert result.exit_code == 2
    assert f"stand before it: framework {flag} " in said
    assert said.endswith(command)


def test_another_slip_is_told_as_ever():
    result = CliRunner().invoke(build_app(), ["bench", "core", "--plugin-optio", "x"])
    assert result.exit_code == 2
    assert "stand before" not in one_line(result.output)


def test_a_command_of_a_plugin_says_it_too(capsys):
    def measure(times: int = 1) -> None:
        raise AssertionError("it must not run")

    call = CommandCall(
        program="framework bench it", arguments=("--plugin-option", "a.b.c=1"), root=RootOptions()
    )
    assert run_typer(measure, call) == 2
    said = one_line(capsys.readouterr().err)
    assert "framework --plugin-option KIND.NAME.KEY=VALUE bench it" in said


@pytest.mark.parametrize("word", ["-v", "--frozen", "--plugin-option=a.b.c=1"])
def test_a_server_which_takes_any_field_as_a_flag_says_it_too(word):
    with pytest.raises(ConfigError) as caught:
        parse_fields([word], (), tuple)
    assert "stand before it" in caught.value.mend
