"""Twenty things that hurt people who write plugins for other engines, and what happens here.

One test each, in the order of the list from which this plugin system was designed.  The other
tests of this folder look at each part closely; these show the whole from an operator's side.
"""

from __future__ import annotations

import dataclasses
import importlib
import multiprocessing
import sys

import pytest

from framework import LLM
from framework.config.choices import choice_fields
from framework.config.sections import EngineConfig
from framework.contracts.base import Supported, TurnedOff
from framework.engine.serve import mount
from framework.errors import PluginError, SelectionError, UnsupportedError
from framework.plugins.children import hand_over, take_over
from framework.plugins.hooks import build_hooks
from framework.plugins.kinds import KINDS, Adapter, Scope, Stability
from framework.plugins.loading import contract_of
from framework.plugins.policy import Policy
from framework.plugins.records import State
from framework.plugins.registry import PluginRegistry
from framework.plugins.routes import Route, check_routes
from framework.plugins.selection import select
from framework.testing.fake_model import MODEL, fake_plugins
from tools import contract_snapshot

SECTIONS = [field.annotation for field in EngineConfig.model_fields.values()]

BOMB = "raise RuntimeError('imported')"
POLICY = """
from pydantic import BaseModel, SecretStr
from framework.contracts.scheduling_policy import SchedulingPolicy
made = []
class P(SchedulingPolicy):
    \"\"\"Last come, first served.\"\"\"
    class Options(BaseModel):
        depth: int = 1
        token: SecretStr = SecretStr("")
    def __init__(self, options=None):
        super().__init__(options)
        made.append(options)
    def keys(self, requests):
        return -requests.arrival.astype(float)
"""
WAITS = """
import threading
for thread in threading.enumerate():
    if isinstance(thread, threading.Timer):
        thread.join(200)
"""
HOOKS = """
from framework.contracts.hooks import HookSpecs, hookimpl
class H(HookSpecs):
    @hookimpl
    def engine_started(self, notes):
        pass
"""


ENDPOINT = """
from framework.contracts.endpoint import Endpoint
class E(Endpoint):
    def routes(self, service):
        return "/v1/completions"
"""


def engine(**options):
    return LLM(MODEL, plugins=fake_plugins(), executor="echo", **options)


@pytest.fixture
def query(house):
    return importlib.import_module("thing_contract").ThingQuery


def test_symptom_01_a_stale_plugin_that_was_chosen_is_fatal_and_nothing_else_steps_in(
    house, query, caplog
):
    """A broken accelerator plugin must not leave the server running on something slower."""
    house.add("stale-dist", {"things fast": "T", "platforms fast": "P"}, BOMB)
    house.thing("slow", "fine")
    for registry, more in (
        (house.registry(), {"operator": "fast"}),
        (house.registry({"FRAMEWORK_PLUGINS": "+thing:fast"}), {}),
    ):
        with pytest.raises(PluginError, match="thing:fast@stale-dist failed on import") as caught:
            select(registry, "thing", query(size=1), **more)
        assert caught.value.distribution == "stale-dist"
    # What is slower serves when the operator says so.
    opted = select(house.registry(), "thing", query(size=1), operator="slow")
    assert opted.record.name == "slow"
    platform = house.registry({"FRAMEWORK_PLUGINS": "+platform:fast"})
    (record,) = platform.candidates("platform")
    with pytest.raises(PluginError, match="platform:fast@stale-dist failed on import"):
        platform.create_record(record)


def test_symptom_02_an_unknown_name_in_a_list_says_what_was_meant_and_where_it_lies(house):
    """It does not surface later as something that the model cannot do."""
    house.thing("tiger", "zoo")
    with pytest.raises(PluginError, match="FRAMEWORK_PLUGINS names 'tigre'") as caught:
        house.registry({"FRAMEWORK_PLUGINS": "tigre"}).check()
    text = str(caught.value)
    assert "did you mean 'tiger'" in text
    assert "zoo-1.0.dist-info" in text
    assert "pip install" in text


def test_symptom_03_installing_activates_nothing(house, extra_code):
    """Whoever sees requests runs only once named; the rest only once chosen."""
    packages = [
        house.add("d1", {"hooks h": "H"}, BOMB),
        house.add("d2", {"scheduler_participants s": "S", "logits_processors l": "L"}, BOMB),
        house.add("d3", {"scheduling_policies p": "P"}, BOMB),
        house.add("d4", {"extras e": "E"}, extra_code),
    ]
    with engine() as llm:
        assert llm.generate("hi")[0].outputs[0].text == "hi"
    assert house.registry().activated("extra") == []
    assert not set(packages) & set(sys.modules)


def test_symptom_04_a_child_process_has_the_plugins_of_its_parent_or_says_what_differs(
    house, capfd, monkeypatch
):
    """A spawned child finds the same distributions with the same files, or does not start."""
    package = house.add("dist", {"scheduling_policies p": "P"}, POLICY, folder="site")
    registry = PluginRegistry(policy=Policy())
    payload = hand_over(registry, [Scope.ENGINE_CORE], {"scheduling_policy": ["p"]})
    spawn = multiprocessing.get_context("spawn")
    codes = []
    for change in ("", "# edited after the parent had started\n"):
        (house.root / "site" / package / "__init__.py").write_text(POLICY + change)
        child = spawn.Process(target=take_over, args=(payload,))
        child.start()
        child.join()
        codes.append(child.exitcode)
    assert codes == [0, 1]
    assert "scheduling_policy:p@dist: files " in capfd.readouterr().err


def test_symptom_05_a_changed_signature_breaks_no_plugin_of_the_version_before(house, query):
    """A field only matters where it is not neutral; an adapter carries the major before."""
    package = house.thing("old", "d", contract=">=1.0,<2")
    contract = importlib.import_module("thing_contract")

    class FromOne(contract.Thing):
        def answer(self, query):  # 2.0 asks with a mapping
            return super().answer(contract.ThingQuery(**query))

    contract.FromOne = FromOne
    with pytest.raises(SelectionError, match=r"colour='red', needs a plugin that knows more"):
        select(house.registry(), "thing", query(size=1, colour="red"))
    carried = dataclasses.replace(
        house.kinds[-2],
        version="2.0",
        adapter=Adapter(version="1.1", mixin="thing_contract:FromOne"),
    )
    registry = PluginRegistry(policy=Policy(), kinds=[carried], search_path=house.paths)
    old = registry.create("thing", "old")
    assert old.answer({"size": 1}) == Supported(note="fits")
    assert type(old).__module__ == package


def test_symptom_06_a_contract_cannot_change_by_accident(house):
    """Each has a version and a tier, the stable ones a snapshot of their signatures; a class that
    does not fit is told what it lacks."""
    contracts = {kind.name: kind for kind in KINDS if kind.stability is not Stability.RESERVED}
    assert all(contract_of(kind).kind == name for name, kind in contracts.items())
    frozen = contract_snapshot.read()
    assert set(frozen) <= set(contracts)
    surface = frozen["scheduling_policy"].surface
    name = next(name for name in surface if name.endswith("keys"))
    changed = dataclasses.replace(
        frozen["scheduling_policy"], surface={**surface, name: "keys(self, requests, colour)"}
    )
    (problem,) = contract_snapshot.problems(
        {"scheduling_policy": frozen["scheduling_policy"]}, {"scheduling_policy": changed}
    )
    assert "2.0" in problem
    house.add("d", {"things a": "T"}, "from thing_contract import Thing\nclass T(Thing): pass\n")
    with pytest.raises(PluginError, match="does not fulfil the contract of thing: found no answer"):
        house.registry().load("thing", "a")


def test_symptom_07_a_logits_processor_that_a_runner_would_ignore_is_refused(house):
    """Neither at the start nor for a request is anything inert without a word."""
    source = (
        "from framework.contracts.logits_processor import LogitsProcessor\n"
        "class L(LogitsProcessor):\n"
        "    def apply(self, *arguments): ...\n"
        "    def add(self, *arguments): ...\n"
        "    def remove(self, *arguments): ...\n"
    )
    house.add("d", {"logits_processors ban": "L"}, source)
    with pytest.raises(UnsupportedError, match="logits processors ban would do nothing"):
        engine(logits_processors=["ban"])


def test_symptom_08_a_name_that_only_a_plugin_knows_is_as_good_as_a_built_in_one(house):
    """No list in the core closes a set of names."""
    package = house.add("d", {"scheduling_policies theirs": "P"}, POLICY)
    with engine(scheduling_policy="theirs") as llm:
        assert llm.generate("hi")[0].outputs[0].text == "hi"
    assert len(sys.modules[package].made) == 1
    fields = {name: f for s in SECTIONS for name, f in s.model_fields.items()}
    choosing = [name for kind in KINDS for name in choice_fields(kind) if name in fields]
    assert {"scheduling_policy", "attention_backend", "executor", "kernels"} <= {*choosing}
    for name in choosing:
        assert "Literal" not in str(fields[name].annotation), f"{name} is a closed set"


def test_symptom_09_two_third_parties_have_a_name_each(house, query):
    """There is no one slot for all; both are there, each by the name that it gave itself."""
    house.thing("gaudi", "d1", limit=1)
    house.thing("ascend", "d2", limit=9)
    registry = house.registry()
    for name, owner in (("gaudi", "d1"), ("ascend", "d2"), ("ascend@d2", "d2")):
        assert select(registry, "thing", query(size=1), operator=name).record.owner == owner
    assert select(registry, "thing", query(size=5)).record.name == "ascend"


def test_symptom_10_what_is_unknown_is_refused_and_never_guessed(house, query):
    """A plugin that does not say what it knows is not taken to know everything."""
    package = house.thing("silent", "d")
    with pytest.raises(SelectionError, match=r"colour='red', needs a plugin that knows more than"):
        select(house.registry(), "thing", query(size=1, colour="red"))
    assert package not in sys.modules
    house.add("e", {"things vague": "T"}, (
        "from thing_contract import Thing\n"
        "class T(Thing):\n    def answer(self, query): return None\n"
    ))  # fmt: skip
    with pytest.raises(PluginError, match="thing:vague@e failed to answer: it answered None"):
        select(house.registry(), "thing", query(size=1), operator="vague")


def test_symptom_11_a_capability_is_asked_for_and_not_a_name():
    """A backend serves a platform that it has never heard of, if that has what it needs."""
    backend = PluginRegistry(policy=Policy()).create("attention_backend", "sdpa")
    contract = importlib.import_module("framework.contracts.attention_backend")
    facts = {
        "capability": None,
        "dtype": "float32",
        "cache_dtype": "float32",
        "head_size": 64,
        "head_size_v": 64,
        "num_heads": 4,
        "num_kv_heads": 4,
    }
    for platform in ("cpu", "made-up-yesterday"):
        answer = backend.answer(contract.AttentionQuery(platform=platform, **facts))
        assert isinstance(answer, Supported)
    other = contract.AttentionQuery(platform="cpu", tensor_api="another", **facts)
    assert [reason.code for reason in backend.answer(other).reasons] == ["tensor_api"]


def test_symptom_12_the_kit_ships_with_the_core_and_needs_no_device(house):
    """A third party proves a plugin with what the core's own distribution holds."""
    from framework.testing.conformance import check

    house.add("d", {"scheduling_policies p": "P"}, POLICY)
    only = ["ALL-010", "ALL-012", "ALL-020"]
    assert check("scheduling_policy:p@d", only=only).conformant
    house.add("e", {"scheduling_policies q": "P"}, "class P: pass\n")
    report = check("scheduling_policy:q@e", only=only)
    assert [outcome.clause.id for outcome in report.failures] == ["ALL-020"]
    report = check("scheduling_policy:q@e", only=["POL-001"])
    assert not report.conformant, "what was asked for is not known"
    assert report.problems == (
        "POL-001 was asked for and is not run: the construct layer broke at ALL-020",
    )
    assert [outcome.clause.id for outcome in report.outcomes] == ["ALL-020", "POL-001"]


def test_symptom_13_two_claims_to_a_name_are_told_with_both_owners(house):
    """None wins by accident; a replacement acts when the operator names it."""
    tree = house.thing("fused", "in-tree")
    plugin = house.thing("fused", "plugin-dist", replaces=["fused"])
    with pytest.raises(PluginError, match="claimed by fused@in-tree and by fused@plugin-dist"):
        house.registry().load("thing", "fused")
    assert house.registry().load("thing", "fused@in-tree").__module__ == tree
    named = house.registry({"FRAMEWORK_PLUGINS": "+fused@plugin-dist"})
    assert named.load("thing", "fused").__module__ == plugin
    assert "thing:fused@in-tree is off because of plugin thing:fused@plugin-dist" in named.notes[0]


def test_symptom_14_whatever_a_plugin_turns_off_is_a_line_of_the_start(
    house, query, monkeypatch, caplog
):
    """A feature that is lost is told with the plugin and the reason."""
    manifest = house.manifest("hooks", "h") + (
        '[[plugin.config]]\nfield = "enable_prefix_caching"\nvalue = false\n'
        'reason = "it reads every page"\n'
    )
    house.add("d", {"hooks h": "H"}, HOOKS, manifest)
    monkeypatch.setenv("FRAMEWORK_PLUGINS", "+h")
    with caplog.at_level("INFO"), engine() as llm:
        assert not llm.config.cache.enable_prefix_caching
    line = "enable_prefix_caching is off because of plugin hooks:h@d: it reads every page"
    assert line in caplog.messages
    code = (
        "from framework.contracts.base import Supported, TurnedOff\n"
        "from thing_contract import Thing\n"
        "class T(Thing):\n    def answer(self, query):\n"
        "        off = TurnedOff(feature='graphs', reason='it syncs')\n"
        "        return Supported(turns_off=(off,))\n"
    )
    house.add("e", {"things t": "T"}, code)
    registry = house.registry({"FRAMEWORK_PLUGINS": "t"})
    chosen = select(registry, "thing", query(size=1))
    assert chosen.answer.turns_off == (TurnedOff(feature="graphs", reason="it syncs"),)
    assert registry.notes == ["graphs is off because of plugin thing:t@e: it syncs"]


@pytest.mark.parametrize("way", ["keyword", "environment", "file"])
def test_symptom_15_options_are_typed_and_a_mistyped_one_is_answered(
    house, way, monkeypatch, tmp_path
):
    """From each source an option is converted, a wrong one told, a secret kept."""
    from framework.config.resolve import resolve

    package = house.add("d", {"scheduling_policies p": "P"}, POLICY)
    file = tmp_path / "engine.yaml"

    def start(key, value):
        keywords = {"model": MODEL, "plugins": fake_plugins(), "executor": "echo"}
        keywords["scheduling_policy"] = "p"
        env = {}
        if way == "keyword":
            keywords["plugin_options"] = {f"scheduling_policy.p.{key}": value}
        elif way == "environment":
            env[f"FRAMEWORK_PLUGIN_OPTION__SCHEDULING_POLICY__P__{key.upper()}"] = value
        else:
            file.write_text(
                f"plugin: {{plugin_options: {{scheduling_policy: {{p: {{{key}: '{value}'}}}}}}}}"
            )
        LLM.from_config(resolve(keywords, env=env, file=file if file.exists() else None)).close()

    start("depth", "7")
    assert sys.modules[package].made[-1].depth == 7
    start("token", "hush")
    assert "hush" not in repr(sys.modules[package].made[-1])
    with pytest.raises(PluginError, match="did you mean 'depth'") as caught:
        start("dept", "hush")
    assert "hush" not in str(caught.value)


def test_symptom_16_a_start_imports_what_it_uses_and_names_what_is_slow(house, monkeypatch, capfd):
    """A plugin that nobody chose cannot slow or stop a start; one that is chosen is named."""
    asleep = house.add("d1", {"scheduling_policies asleep": "P"}, "import time; time.sleep(60)")
    with engine():
        assert asleep not in sys.modules
    slow = WAITS + POLICY
    house.add("d2", {"scheduling_policies slow": "P"}, slow)
    with engine(scheduling_policy="slow", slow_import=0.1):
        pass
    assert "scheduling_policy:slow@d2" in [
        word for line in capfd.readouterr().err.splitlines() if "may hang" in line
        for word in line.split()
    ]  # fmt: skip


def test_symptom_17_what_is_registered_can_be_taken_back(house):
    """A registration has a handle; what a failed import registered is gone by itself."""
    registry = house.registry()
    contract = importlib.import_module("thing_contract")

    class Mine(contract.Extra):
        pass

    handle = registry.register("extra", "mine", Mine, "me")
    assert [record.state for record in registry.records("extra")] == [State.LOADED]
    handle.close()
    assert registry.records("extra") == []
    contract.registry = registry
    house.add(
        "d",
        {"things half": "T"},
        "import thing_contract as t\nt.registry.register('extra', 'x', t.Extra, 'd')\n1 / 0\n",
    )
    later = house.registry()
    contract.registry = later
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        later.load("thing", "half")
    assert later.records("extra") == []


def test_symptom_18_an_order_is_said_and_not_spelled_into_names(house, extra_code):
    """before and after hold whatever the names are."""
    for name, facts in {"zebra": {"before": ["ant"]}, "ant": {}, "bee": {"after": ["ant"]}}.items():
        house.add(
            f"d-{name}",
            {f"extras {name}": "E"},
            extra_code,
            house.manifest("extra", name, **facts),
        )
    order = house.registry({"FRAMEWORK_PLUGINS": "extra:*"}).activated("extra")
    assert [record.name for record in order] == ["zebra", "ant", "bee"]


def test_symptom_19_a_route_of_a_plugin_cannot_shadow_one_of_the_core(house):
    """It has a prefix of its own; granted the root, a collision is an error with both owners."""
    for owner, name in (("ours", "chat"), ("theirs", "mine")):
        house.add(owner, {f"endpoints {name}": "E"}, ENDPOINT)
    trusted = frozenset({"ours"})
    assert [m.key for m in mount(house.registry(first_party=trusted), {})] == ["endpoint:chat@ours"]
    registry = house.registry({"FRAMEWORK_PLUGINS": "+mine"}, first_party=trusted)

    def serve(prefixes):
        mounted = mount(registry, prefixes)
        check_routes(Route(m.key, "POST", m.prefix + m.endpoint.routes(None)) for m in mounted)
        return [m.prefix for m in mounted]

    assert serve({}) == ["", "/plugins/mine"]
    assert serve({"mine": "/more"}) == ["", "/more"]
    with pytest.raises(PluginError, match="endpoint:mine@theirs and endpoint:chat@ours both claim"):
        serve({"mine": ""})


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("engine_started", "engine_start", "unknown hook 'engine_start'.*'engine_started'"),
        ("    @hookimpl\n", "", "lacks the mark and would never be called"),
    ],
)
def test_symptom_20_a_hook_that_would_never_be_called_stops_the_start(house, old, new, words):
    """Hooks are named seams of one specification; nothing is patched and reported as applied."""
    house.add("d", {"hooks h": "H"}, HOOKS.replace(old, new))
    with pytest.raises(PluginError, match=words):
        build_hooks(house.registry({"FRAMEWORK_PLUGINS": "+h"}))


def test_symptom_20_a_hook_of_another_release_is_declared_as_optional(house):
    """What is required stops the start where it is missing; what may be missing says so."""
    later = HOOKS.replace("@hookimpl", "@hookimpl(optionalhook=True)").replace("started", "tuned")
    house.add("d", {"hooks h": "H"}, later)
    assert build_hooks(house.registry({"FRAMEWORK_PLUGINS": "+h"})).caller("engine_started") is None
