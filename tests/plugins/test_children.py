"""A real child process has the plugins of its parent, or says which rows differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import pytest
from pydantic import SecretStr

from framework.errors import PluginError
from framework.plugins.children import Handover, hand_over, take_over
from framework.plugins.kinds import Scope
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry

POLICY = """
from pydantic import BaseModel, SecretStr
from framework.contracts.scheduling_policy import SchedulingPolicy
class P(SchedulingPolicy):
    class Options(BaseModel):
        depth: int = 3
        token: SecretStr = SecretStr("")
    def keys(self, requests):
        return requests.arrival.astype(float)
"""
PARTICIPANT = """
from framework.contracts.participant import SchedulerParticipant
class E(SchedulerParticipant):
    pass
"""
CHILD = """
import json, sys
from framework.errors import PluginError
from framework.plugins.children import take_over
try:
    registry = take_over(sys.stdin.buffer.read())
except PluginError as error:
    sys.exit(f"refused: {error}")
policy = registry.create("scheduling_policy", NAME, named=True)
participants = [r.key for r in registry.activated("scheduler_participant")]
print(json.dumps({
    "depth": policy.options.depth, "token": policy.options.token.get_secret_value(),
    "plugin": policy.plugin_id, "scopes": sorted(registry.scopes), "participants": participants,
    "strict": registry.policy.strict,
}))
"""


@pytest.fixture
def spawn(house):
    """Run a child with a payload.  It sees the house only where the parent tells it to."""

    def call(payload, name="mine", path=(), **env):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
        environment |= {"PYTHONPATH": os.pathsep.join(path), **env}
        code = CHILD.replace("NAME", repr(name))
        return subprocess.run(
            [sys.executable, "-c", code], input=payload, capture_output=True, env=environment
        )

    return call


def parent(env=None, **more):
    return PluginRegistry(policy=Policy.from_env(env or {}), **more)


def test_policy_ad_hoc_plugins_options_and_scope_travel(house, spawn):
    """The child obeys the parent's lists, not its own environment, and knows its secrets."""
    house.add("part", {"scheduler_participants e": "E"}, PARTICIPANT)
    package = house.add("carrier", "", POLICY)
    registry = parent(
        {"FRAMEWORK_PLUGINS": "+e", "FRAMEWORK_PLUGINS_STRICT": "1"},
        ad_hoc={"scheduling_policy:mine": f"{package}:P"},
        options={"scheduling_policy": {"mine": {"depth": 7, "token": SecretStr("hush")}}},
    )
    choices = {"scheduling_policy": ["mine"]}
    payload = hand_over(registry, [Scope.ENGINE_CORE], choices)
    ended = spawn(payload, FRAMEWORK_PLUGINS="", FRAMEWORK_PLUGINS_DENY="*")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    told["participants"] = [key for key in told["participants"] if key.endswith("@part")]
    assert told == {
        "depth": 7,
        "token": "hush",
        "plugin": "scheduling_policy:mine@ad-hoc",
        "scopes": ["engine_core"],
        "participants": ["scheduler_participant:e@part"],
        "strict": True,
    }
    shown = repr(msgspec.msgpack.decode(payload, type=Handover))
    assert "hush" not in shown
    assert "engine_core" in shown


def test_a_child_that_finds_other_plugins_prints_the_rows(house, spawn, monkeypatch, tmp_path):
    """Another version, other files and a plugin too many stop the child before it loads any."""
    house.add("dist", {"scheduling_policies mine": "P"}, POLICY, version="1.0", folder="old")
    house.add(
        "dist", {"scheduling_policies mine": "P"}, POLICY + "#\n", version="2.0", folder="new"
    )
    house.add("only", {"scheduling_policies more": "P"}, "raise SystemExit", folder="more")
    paths = [str(tmp_path / name) for name in ("new", "more")]
    for path in paths:
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != path])
    payload = hand_over(parent(), [Scope.ENGINE_CORE])
    ended = spawn(payload, path=paths)
    text = ended.stderr.decode()
    assert ended.returncode == 1
    assert text.startswith("refused: the plugins of this engine_core process and of its parent")
    assert "version 2.0 in this engine_core process, 1.0 in its parent" in text
    assert "scheduling_policy:more@only: only in this engine_core process" in text
    assert "fcfs" not in text


def test_only_rows_of_the_childs_scope_are_compared(house, spawn, monkeypatch, tmp_path):
    """A plugin of another process may differ."""
    house.add("far", {"model_sources far": "S"}, "raise SystemExit", folder="far")
    far = str(tmp_path / "far")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != far])
    house.add("dist", {"scheduling_policies mine": "P"}, POLICY)
    payload = hand_over(parent(), [Scope.ENGINE_CORE], {"scheduling_policy": ["mine"]})
    assert spawn(payload, path=[far]).returncode == 0


def test_what_is_no_value_cannot_travel(house):
    """A class registered in code and an object as an option are refused in the parent."""
    registry = house.registry()
    from thing_contract import Thing

    class Mine(Thing):
        def answer(self, query): ...

    with (
        registry.register("thing", "mine", Mine, "me"),
        pytest.raises(PluginError, match="thing:mine@me was registered in code"),
    ):
        hand_over(registry, [Scope.WORKER])
    hand_over(registry, [Scope.FRONT_END])
    house.thing("t", "d")
    registry = house.registry(options={"thing": {"t": {"x": object()}}})
    with pytest.raises(PluginError, match="option of a plugin cannot reach a child"):
        hand_over(registry, [Scope.WORKER])


def test_no_plugins_travels(house):
    """A child of a parent that admits the first party only admits no other."""
    house.thing("t", "d")
    payload = hand_over(house.registry(no_plugins=True), [Scope.WORKER])
    child = take_over(payload, kinds=house.kinds, search_path=house.paths, first_party=frozenset())
    assert child.policy.no_plugins
    assert [record.state for record in child.records("thing")] == ["denied"]


@pytest.mark.parametrize("allow", [None, "", "+a,b:c@d*", "model:x, +y"])
@pytest.mark.parametrize("deny", ["", "x,model:y@z"])
def test_a_policy_is_the_same_after_the_way(allow, deny):
    """The variables that travel make the same policy again."""
    allowed = {} if allow is None else {"FRAMEWORK_PLUGINS": allow.replace("b:", "hooks:")}
    policy = Policy.from_env({**allowed, "FRAMEWORK_PLUGINS_DENY": deny})
    assert Policy.from_env(policy.as_env()) == policy
