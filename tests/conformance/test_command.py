"""One broken command for each clause of the suite; those that exist pass it."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys

import pytest

from framework.contracts.command import Command
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance import Layer, check, clauses_of
from framework.testing.conformance.probe import HEAVY
from framework.testing.conformance.suites.command import CommandSuite
from tests.conformance.mutants import assert_caught, assert_fails, breaks, mutants_of, uncovered
from tests.conformance.sites import put

IN_PROCESS = (Layer.CONSTRUCT, Layer.BEHAVIOUR)
STATIC = (Layer.STATIC,)
OURS = [r.key for r in PluginRegistry(policy=Policy()).records("command") if r.first_party]


class Plain(Command):
    """Counts words."""

    def run(self, call):
        try:
            flags = self.parser(call).parse_args(call.arguments)
        except SystemExit as end:
            return int(end.code or 0)
        print(len(flags.text.split()))
        return 0

    def parser(self, call):
        parser = argparse.ArgumentParser(call.program)
        parser.add_argument("text")
        return parser


@breaks("CMD-010", "CMD-012", "CMD-017")
class Exits(Plain):
    """Leaves the process itself."""

    def run(self, call):
        flags = self.parser(call).parse_args(call.arguments)
        print(len(flags.text.split()))
        return 0


@breaks("CMD-011")
class OwnName(Plain):
    """Goes by the name that it had as a script."""

    def parser(self, call):
        parser = argparse.ArgumentParser("count.py")
        parser.add_argument("text")
        return parser


@breaks("CMD-012", "CMD-017")
class TakesAll(Plain):
    """Takes a flag that it does not know for a part of the text."""

    def run(self, call):
        if "--help" in call.arguments:
            return super().run(call)
        print(len(call.arguments), file=sys.stderr)
        return 0


@breaks("CMD-017")
class HasNoJson(Plain):
    """A flag that others have, and that was forgotten here."""

    def run(self, call):
        if call.arguments[:1] == ("--json",):
            raise NotImplementedError
        return super().run(call)


@breaks("CMD-017")
class LooksUpTheFile(Plain):
    """Before it looks at the flags."""

    def run(self, call):
        for word in call.arguments:
            os.access(word, os.R_OK)
        return super().run(call)


@breaks("CMD-017")
class TakesADashForItsInput(Plain):
    """And forgets the rest."""

    def run(self, call):
        return 0 if "-" in call.arguments else super().run(call)


@breaks("CMD-013")
class SaysItAloud(Plain):
    """Tells what is wrong where the answer belongs, too."""

    def run(self, call):
        status = super().run(call)
        if status == 2:
            print("wrong use")
        return status


@breaks("CMD-014")
class Once(Plain):
    """Has a parser for one use."""

    used = False

    def run(self, call):
        first, self.used = not self.used, True
        return super().run(call) if first else 2


@breaks("CMD-015")
class Sets(Plain):
    """Tells a library by the environment how to behave."""

    def run(self, call):
        os.environ["TOKENIZERS_PARALLELISM_OF_A_MUTANT"] = "false"
        return super().run(call)


@breaks("CMD-015")
class Moves(Plain):
    """Works in the folder of its data."""

    def run(self, call):
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        return super().run(call)


@breaks("CMD-015")
class Deaf(Plain):
    """Wants to end its work in peace."""

    def run(self, call):
        # Not SIG_IGN, which the tests may have been started with.
        signal.signal(signal.SIGHUP, lambda *_: None)
        return super().run(call)


@breaks("CMD-015")
class Renames(Plain):
    """Hands a library its arguments the old way."""

    def run(self, call):
        sys.argv = [call.program, *call.arguments]
        return super().run(call)


@breaks("CMD-015")
class Loud(Plain):
    """Logs as it likes."""

    def run(self, call):
        logging.getLogger().addHandler(logging.NullHandler())
        return super().run(call)


@breaks("CMD-015")
class Redirects(Plain):
    """Has its own idea of an output, and keeps it."""

    def run(self, call):
        status = super().run(call)
        sys.stdout = sys.stderr
        return status


MUTANTS = mutants_of(list(globals().values()))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_caught(mutant):
    """What one run changes of the process is put back, or no later run could be seen to do so."""
    before = signal.getsignal(signal.SIGHUP), sys.argv, os.getcwd(), sys.stdout
    handlers = list(logging.getLogger().handlers)
    assert_caught(mutant, CommandSuite, layers=IN_PROCESS)
    assert (signal.getsignal(signal.SIGHUP), sys.argv, os.getcwd(), sys.stdout) == before
    assert logging.getLogger().handlers == handlers


CODE = """
import argparse, socket, sys, types
from framework.contracts.command import Command

class P(Command):
    '''Needs more for its help than its help.'''

    def run(self, call):
        if sys.argv[0].endswith("probe_child.py"):
            {fault}
        try:
            argparse.ArgumentParser(call.program).parse_args(call.arguments)
        except SystemExit as end:
            return int(end.code or 0)
        return 0
"""
ONE_LINE = '{help = "One line."}'


@pytest.mark.parametrize(
    "fault",
    [
        "sys.modules.setdefault('torch', types.ModuleType('torch'))",
        "socket.getaddrinfo('localhost', 80)",
    ],
)
def test_help_that_costs_more_than_help_is_caught(monkeypatch, tmp_path, fault):
    name = put(monkeypatch, tmp_path, "command", CODE.format(fault=fault), facts=ONE_LINE)
    report = check(name, suite=CommandSuite, layers=(Layer.STATIC, *IN_PROCESS))
    assert_fails(report, "CMD-016")


@pytest.mark.parametrize(
    ("clause", "facts"),
    [
        ("CMD-001", '{help = "One line.", path = "Not This"}'),
        ("CMD-001", '{help = "One line.", path = "one two three four"}'),
        ("CMD-001", '{help = "One line.", path = 3}'),
        ("CMD-001", '{help = "One line.", path = "plugins list"}'),
        ("CMD-001", '{help = "One line.", path = "serve faster"}'),
        ("CMD-002", "{}"),
        ("CMD-002", '{help = "Two\\nlines."}'),
        ("CMD-002", '{help = "' + "long " * 30 + '"}'),
    ],
)
def test_what_a_manifest_says_wrongly_is_caught(monkeypatch, tmp_path, clause, facts):
    name = put(monkeypatch, tmp_path, "command", "", facts=facts)
    assert_fails(check(name, suite=CommandSuite, layers=STATIC), clause)


def test_every_clause_has_a_mutant():
    """But for those that need a distribution, which are broken above."""
    assert uncovered(CommandSuite, MUTANTS) == {"CMD-001", "CMD-002", "CMD-016"}


def test_a_sound_command_conforms():
    report = check(Plain, suite=CommandSuite, layers=IN_PROCESS)
    assert not report.failures, report.text()


CHEAP = [clause.id for clause in clauses_of(CommandSuite) if clause.id != "CMD-016"]
HELP = """
import sys
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from framework.testing.conformance.suites.command import ask_for_help

registry = PluginRegistry(policy=Policy())
for record in registry.records("command"):
    ask_for_help(registry.create_record(record))
print("MODULES", *{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.parametrize("plugin", OURS)
def test_the_built_in_commands_conform(plugin):
    """They share a module, so that one stands for all where a process is needed."""
    more = {} if plugin == OURS[0] else {"only": CHEAP, "layers": (Layer.STATIC, *IN_PROCESS)}
    report = check(plugin, **more)
    assert not report.failures, report.text()


def test_help_of_the_built_in_commands_loads_nothing_heavy():
    ended = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    modules = set(ended.stdout.splitlines()[-1].split()[1:])
    assert "framework_commands" in modules
    assert not modules & {*HEAVY, "fastapi", "uvicorn", "matplotlib"}
