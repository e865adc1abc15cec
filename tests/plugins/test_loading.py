from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from framework.contracts.base import name_of
from framework.errors import PluginError
from framework.plugins.records import State

GOOD = "from thing_contract import Thing\nclass T(Thing):\n    def answer(self, query): ...\n"

WAITS = """
import threading
for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
        thread.join(200)
"""
"""An import that lasts until the watchdog has spoken."""


def load_fails(house, code, plugins=None, **more):
    house.add("dist", plugins or {"things t": "T"}, code, **more)
    registry = house.registry()
    with pytest.raises(PluginError) as caught:
        registry.load("thing", "t")
    (record,) = registry.records("thing")
    return record, caught.value


def test_load_gives_the_class_and_the_record_its_facts(house):
    """A good plugin is loaded once, timed, and used after an instance was made."""
    house.add("dist", {"things t": "T"}, GOOD)
    registry = house.registry()
    (record,) = registry.records("thing")
    assert (record.state, record.facts) == (State.DISCOVERED, None)
    cls = registry.load("thing", "t")
    assert cls.__name__ == "T"
    assert registry.load("thing", "t") is cls
    assert record.state is State.LOADED
    assert record.load_seconds is not None
    assert record.facts is not None
    assert record.facts.scopes == ("engine_core", "worker")
    assert isinstance(registry.create("thing", "t"), cls)
    assert record.state is State.USED


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("class Odd(BaseException): pass\nraise Odd('strange')", "Odd: strange"),
        ("import no_such_module_at_all", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("from framework.errors import PluginError\nraise PluginError('theirs')", "theirs"),
    ],
)
def test_whatever_an_import_raises_names_the_plugin(house, code, found):
    """Errors and exits of a module become one PluginError with plugin and distribution."""
    record, error = load_fails(house, code)
    assert record.state is State.FAILED
    assert found in record.reason
    assert (error.plugin, error.distribution) == ("thing:t@dist", "dist")
    assert found in str(error)
    assert "FRAMEWORK_PLUGINS_DENY=thing:t@dist" in str(error)


def test_a_failed_plugin_is_not_imported_again(house):
    """The second use of a failed plugin repeats the reason."""
    package = house.add("dist", {"things t": "T"}, "raise RuntimeError('boom')")
    registry = house.registry()
    for _ in range(2):
        with pytest.raises(PluginError, match="boom"):
            registry.load("thing", "t")
        assert package not in sys.modules
    house.thing("u", "neighbour")
    assert house.registry().load("thing", "u").__name__ == "T"


def test_keyboard_interrupt_passes_through(house):
    """An interruption is no fault of the plugin, which can be loaded afterwards."""
    house.add("dist", {"things t": "T"}, "raise KeyboardInterrupt")
    registry = house.registry()
    with pytest.raises(KeyboardInterrupt):
        registry.load("thing", "t")
    assert registry.records("thing")[0].state is State.DISCOVERED


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("T = 3", "int 3"),
        ("class T: pass", "class T"),
        ("from thing_contract import Extra\nclass T(Extra): pass", "class T"),
        ("from thing_contract import Thing\nclass T(Thing): pass", "no answer"),
        (GOOD + "    kind = 'extra'", "kind = 'extra'"),
    ],
)
def test_class_that_does_not_fulfil_the_contract_is_incompatible(house, code, found):
    """A wrong base, kind or a missing method is found before an instance is made."""
    record, error = load_fails(house, code)
    assert record.state is State.INCOMPATIBLE
    assert found in record.reason
    assert "thing_contract:Thing" in str(error) or "kind = 'thing'" in str(error)


def test_missing_attribute_gets_near_matches(house):
    """An entry point to a name that the module lacks is answered with a similar one."""
    record, error = load_fails(house, GOOD.replace("class T", "class Tiger"), {"things t": "Tigre"})
    assert record.state is State.FAILED
    assert "did you mean 'Tiger'" in str(error)


def test_contract_range_outside_of_this_core_is_incompatible(house):
    """A plugin for another contract version is refused without importing it."""
    record, error = load_fails(
        house, "raise SystemExit", manifest=house.manifest("thing", "t", ">=2.0")
    )
    assert record.state is State.INCOMPATIBLE
    assert "made for contract >=2.0, this core has 1.1" in str(error)


def test_broken_manifest_fails_the_plugin_and_names_the_file(house):
    """A plugin with a wrong manifest is failed, with file and key in the reason."""
    record, error = load_fails(house, GOOD, manifest="schema = 1\nplugn = []\n")
    assert record.state is State.FAILED
    assert "framework-plugin.toml: unknown key 'plugn' (did you mean 'plugin'?)" in str(error)


def test_a_reserved_kind_cannot_be_loaded_but_is_listed(house):
    """A plugin of a kind without a contract is in the list; using it is a clear error."""
    house.add("dist", {"communicators k": "K"}, "raise SystemExit")
    registry = house.registry()
    assert [r.state for r in registry.records("communicator")] == [State.DISCOVERED]
    with pytest.raises(PluginError, match="kind 'communicator' is reserved"):
        registry.load("communicator", "k")


def test_a_plugin_that_loads_itself_is_an_error(house):
    """A circle of loading ends with an error, not with a hang."""
    code = "import thing_contract\nthing_contract.registry.load('thing', 't')"
    house.add("dist", {"things t": "T"}, code)
    registry = house.registry()
    import thing_contract

    thing_contract.registry = registry
    with pytest.raises(PluginError, match="loads itself"):
        registry.load("thing", "t")


def test_a_failed_constructor_names_the_plugin(house):
    """An error in __init__ is a PluginError and fails the record."""
    house.add("dist", {"things t": "T"}, GOOD + "    def __init__(self, options): 1 / 0\n")
    registry = house.registry()
    with pytest.raises(PluginError, match="thing:t@dist failed to start: ZeroDivisionError"):
        registry.create("thing", "t")
    assert registry.records("thing")[0].state is State.FAILED


def test_one_that_failed_to_start_is_made_no_more(house):
    """Whoever holds the record and asks again is told of the first failure."""
    code = "    made = 0\n    def __init__(self, options):\n        T.made += 1\n"
    house.add("dist", {"things t": "T"}, GOOD + code + "        1 / (T.made - 2)\n")
    registry = house.registry()
    record = registry.find("thing", "t")
    registry.create_record(record)
    for _ in range(2):
        with pytest.raises(PluginError, match="thing:t@dist failed to start: ZeroDivisionError"):
            registry.create_record(record)
    assert record.cls.made == 2


def test_watchdog_names_a_slow_import(house, capfd):
    """An import over the limit is named on stderr while it runs; a quick one is not."""
    house.add("slow", {"things slow": "T"}, WAITS + GOOD)
    house.add("quick", {"things quick": "T"}, GOOD)
    house.registry(slow_import=0.05).load("thing", "slow")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "may hang" in line]
    assert "thing:slow@slow" in line
    house.registry(slow_import=60).load("thing", "quick")
    assert "may hang" not in capfd.readouterr().err


def test_breadcrumb_names_a_third_party_that_kills_the_process(house):
    """When an import ends the process without Python noticing, the last line names it."""
    house.add("dist", {"scheduling_policies t": "T"}, "import os; os._exit(9)")
    script = textwrap.dedent(
        f"""
        import sys
        sys.path[:0] = {house.paths!r}
        from framework.plugins import PluginRegistry, Policy
        PluginRegistry(policy=Policy(), search_path={house.paths!r}).load("scheduling_policy", "t")
        """
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 9
    assert "scheduling_policy:t@dist" in ended.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("code", "state", "found"),
    [
        (GOOD + "    Options = int\n", State.INCOMPATIBLE, "Options = <class 'int'>"),
        (
            "class M(type):\n"
            "    def __getattribute__(cls, name): raise RuntimeError('odd')\n"
            "class T(metaclass=M): pass\n",
            State.FAILED,
            "RuntimeError: odd",
        ),
    ],
)
def test_a_class_that_cannot_be_checked_names_the_plugin(house, code, state, found):
    """Wrong Options and a metaclass that raises are errors of the plugin, never a traceback."""
    record, error = load_fails(house, code)
    assert record.state is state
    assert found in str(error)
    assert error.distribution == "dist"


def test_a_syntax_error_is_found_in_the_plugin_itself(house):
    """The place named is the line that cannot be parsed, not one of the import system."""
    _, error = load_fails(house, "\n\ndef f(:")
    assert str(error.found).endswith("__init__.py:3")


def test_an_instance_knows_what_it_is_called(house):
    """Messages of whoever calls it can name plugin and distribution, whatever its __setattr__."""
    house.add(
        "dist",
        {"things t": "T"},
        GOOD + "    def __setattr__(self, n, v): raise OSError\n"
        "    def __init__(self, options=None): pass\n",
    )
    assert name_of(house.registry().create("thing", "t")) == "thing:t@dist"
    assert name_of(1) == "builtins:int"


def test_one_that_refuses_its_name_fails_to_start(house):
    code = GOOD + "    @property\n    def plugin_id(self): return 'mine'\n"
    house.add("dist", {"things t": "T"}, code)
    registry = house.registry()
    with pytest.raises(PluginError, match="thing:t@dist failed to start: AttributeError"):
        registry.create("thing", "t")
    assert registry.records("thing")[0].state is State.FAILED


def test_a_denied_plugin_is_told_what_would_admit_it(house):
    """The mend fits the reason: the list, the deny list, or --no-plugins."""
    house.thing("a", "d")
    cases = (
        ({"FRAMEWORK_PLUGINS": ""}, False, "name it in FRAMEWORK_PLUGINS"),
        ({"FRAMEWORK_PLUGINS_DENY": "a"}, False, "take it out of FRAMEWORK_PLUGINS_DENY"),
        ({}, True, "leave out --no-plugins"),
    )
    for env, no_plugins, mend in cases:
        with pytest.raises(PluginError) as caught:
            house.registry(env, no_plugins=no_plugins).load("thing", "a")
        assert caught.value.mend == mend


def test_a_class_that_is_not_there_says_how_to_mend_it(house):
    _, error = load_fails(house, "class Other: ...\n")
    assert "attribute 'T' in" in error.expected
    assert "correct the name in the class or in the entry point of dist" in str(error)
