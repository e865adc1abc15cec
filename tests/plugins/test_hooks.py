from __future__ import annotations

import pytest

from framework.contracts.hooks import HookSpecs
from framework.errors import PluginError
from framework.plugins.hooks import build_hooks

CODE = """
from framework.contracts.hooks import HookSpecs, hookimpl
calls = []
class H(HookSpecs):
    @hookimpl
    def engine_started(self, notes):
        calls.append((__name__, notes))
"""


def add(house, name, code=CODE, **facts):
    manifest = house.manifest("hooks", name, **facts)
    return house.add(f"d-{name}", {f"hooks {name}": "H"}, code, manifest)


def test_admitted_hooks_are_called_in_their_order(house):
    """Hooks run for named third parties only, ordered by before / after and rank."""
    shared = add(house, "b", rank=1)
    other = add(house, "a", CODE.replace("calls = []", f"from {shared} import calls"), before=["b"])
    add(house, "unnamed")
    hooks = build_hooks(house.registry({"FRAMEWORK_PLUGINS": "+a,+b"}))
    hooks.caller("engine_started")(notes=("x",))
    import importlib

    assert importlib.import_module(shared).calls == [(other, ("x",)), (shared, ("x",))]
    assert hooks.caller("engine_closed") is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("engine_started", "engine_startet", "unknown hook 'engine_startet'.*'engine_started'"),
        ("    @hookimpl\n", "", "lacks the mark"),
        ("self, notes", "self, note", "do not fit"),
    ],
)
def test_hooks_that_would_never_be_called_are_errors(house, old, new, message):
    """A mistyped, unmarked or wrongly shaped hook is refused at the start."""
    add(house, "h", CODE.replace(old, new))
    with pytest.raises(PluginError, match=message):
        build_hooks(house.registry({"FRAMEWORK_PLUGINS": "h"}))


def test_without_plugins_hooks_do_nothing(house):
    """There is nothing to call, for any event."""
    hooks = build_hooks(house.registry())
    parse = hooks.manager.parse_hookspec_opts
    events = [name for name in vars(HookSpecs) if parse(HookSpecs, name) is not None]
    assert len(events) == 5
    assert [hooks.caller(name) for name in events] == [None] * 5


def test_a_hook_that_fails_is_logged_by_name_and_the_others_are_called(house, caplog):
    """No error, exit or panic of one plugin's hook keeps the event from the others."""
    faults = {"raises": "RuntimeError('oops')", "exits": "SystemExit(3)"}
    for name, fault in {**faults, "panics": "BaseException"}.items():
        add(house, name, CODE.replace("calls.append((__name__, notes))", f"raise {fault}"), rank=2)
    good = add(house, "good")
    hooks = build_hooks(house.registry({"FRAMEWORK_PLUGINS": "+hooks:*"}))
    hooks.caller("engine_started")(notes=("x",))
    import importlib

    assert importlib.import_module(good).calls == [(good, ("x",))]
    assert "hooks:raises@d-raises" in caplog.text
    assert "hooks:exits@d-exits" in caplog.text
    assert "hooks:panics@d-panics" in caplog.text


def test_a_hook_that_wraps_others_is_refused(house):
    """A wrapper could silence the hooks of other plugins."""
    add(house, "h", CODE.replace("@hookimpl", "@hookimpl(wrapper=True)"))
    with pytest.raises(PluginError, match="wraps") as caught:
        build_hooks(house.registry({"FRAMEWORK_PLUGINS": "h"}))
    assert caught.value.distribution == "d-h"
