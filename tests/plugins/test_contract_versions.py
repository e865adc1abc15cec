"""Plugins of three contract versions in cores of three: on a kind that exists for this alone.

1.0: `answer`, `measure(n)`.  1.1: the query and the plan get a field each.  2.0: `measure(n)`
has become `measure_all(ns)`, and an adapter carries plugins of the major before.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass

import pytest

from framework.contracts.base import check_features, features_of
from framework.errors import PluginError, SelectionError, UnsupportedError
from framework.plugins.kinds import Adapter, Cardinality, Kind, Scope, Stability
from framework.plugins.policy import Policy
from framework.plugins.records import State
from framework.plugins.registry import PluginRegistry
from framework.plugins.selection import select

HEAD = """
from abc import abstractmethod
from dataclasses import dataclass
import numpy as np
from framework.contracts.base import Contract, Query, Supported, versioned

@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeQuery(Query):
    size: int = versioned(since="1.0")
    colour: str = versioned(since="1.1", neutral="grey")
    depth: int = versioned(since="2.0", neutral=0)

@dataclass(frozen=True, slots=True, kw_only=True)
class GaugePlan:
    size: int = versioned(since="1.0")
    loud: bool = versioned(since="1.1", neutral=False, feature="loudness")
    rows: object = versioned(since="1.1", neutral=(), feature="rows")

class Gauge(Contract):
    kind = "gauge"
    declares = frozenset()
    @abstractmethod
    def answer(self, query): ...
    @abstractmethod
"""
ONE = HEAD + "    def measure(self, n): ...\n"
TWO = (
    HEAD
    + """    def measure_all(self, ns): ...

class FromOne(Gauge):
    def measure_all(self, ns):
        return [self.measure(n) for n in ns]
"""
)
CORES = {"1.0": ONE, "1.1": ONE, "2.0": TWO}
PLUGIN = """
from gauge_contract import Gauge, Supported
class G(Gauge):
    def answer(self, query):
        return Supported(note=f"asked for {query.size}")
"""
OLD, NEW = (
    PLUGIN + "    def measure(self, n): return n * 2\n",
    PLUGIN + "    def measure_all(self, ns): return [n * 2 for n in ns]\n",
)
PLUGINS = {"1.0": (">=1.0,<2", OLD), "1.1": (">=1.1,<2", OLD), "2.0": (">=2.0,<3", NEW)}


@dataclass
class Core:
    """A core whose `gauge` has one version, with a plugin made for another."""

    registry: PluginRegistry
    package: str

    def query(self, **fields):
        import gauge_contract

        return gauge_contract.GaugeQuery(size=3, **fields)


@pytest.fixture
def core(house, monkeypatch):
    def make(core_version, plugin_version, adapter=True, manifest=True):
        folder = house.root / f"core-{core_version}"
        folder.mkdir()
        (folder / "gauge_contract.py").write_text(CORES[core_version])
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "gauge_contract", raising=False)
        contract, code = PLUGINS[plugin_version]
        row = house.manifest("gauge", "g", contract) if manifest else None
        package = house.add("dist", {"gauges g": "G"}, code, row)
        carried = Adapter(version="1.1", mixin="gauge_contract:FromOne")
        kind = Kind(
            name="gauge",
            group="framework.gauges",
            contract="gauge_contract:Gauge",
            version=core_version,
            scopes=frozenset({Scope.WORKER}),
            cardinality=Cardinality.ONE,
            stability=Stability.PROVISIONAL,
            adapter=carried if adapter and core_version == "2.0" else None,
        )
        registry = PluginRegistry(
            policy=Policy(), kinds=[kind], search_path=house.paths, first_party=frozenset()
        )
        return Core(registry, package)

    yield make
    sys.modules.pop("gauge_contract", None)


@pytest.mark.parametrize(
    ("core_version", "plugin_version"), list(itertools.product(CORES, PLUGINS))
)
def test_which_plugin_works_in_which_core(core, core_version, plugin_version):
    """A plugin works in cores from its own version on, over the next major by an adapter."""
    made = core(core_version, plugin_version)
    (record,) = made.registry.records("gauge")
    if plugin_version > core_version:
        assert record.state is State.INCOMPATIBLE
        assert f"this core has {core_version}" in record.reason
        with pytest.raises(PluginError, match="made for contract"):
            made.registry.load("gauge", "g")
        assert made.package not in sys.modules
        return
    chosen = select(made.registry, "gauge", made.query())
    assert chosen.answer.note == "asked for 3"
    if core_version == "2.0":
        assert chosen.instance.measure_all([1, 2]) == [2, 4]
        assert record.adapted == (None if plugin_version == "2.0" else "1.1")
    else:
        assert chosen.instance.measure(1) == 2
        assert record.adapted is None


@pytest.mark.parametrize(
    ("core_version", "plugin_version", "fields", "refused"),
    [
        ("1.1", "1.0", {"colour": "red"}, "colour"),
        ("1.1", "1.1", {"colour": "red"}, None),
        ("2.0", "1.0", {"colour": "red"}, "colour"),
        ("2.0", "1.1", {"colour": "red"}, None),
        ("2.0", "1.1", {"depth": 1}, "depth"),
        ("2.0", "2.0", {"depth": 1, "colour": "red"}, None),
        ("2.0", "1.0", {"depth": 0, "colour": "grey"}, None),
    ],
)
def test_a_plugin_is_not_asked_about_a_field_that_came_after_it(
    core, core_version, plugin_version, fields, refused
):
    """A newer field matters only where its value is not neutral, through an adapter as well."""
    made = core(core_version, plugin_version)
    if refused is None:
        assert select(made.registry, "gauge", made.query(**fields)).record.name == "g"
        return
    with pytest.raises(SelectionError, match=f"{refused}=.*needs a plugin that knows more"):
        select(made.registry, "gauge", made.query(**fields))
    assert made.package not in sys.modules


def test_an_adapted_class_keeps_its_name_and_derives_from_both(core):
    """Messages and isinstance see the plugin's own class behind the adapter."""
    made = core("2.0", "1.0")
    cls = made.registry.load("gauge", "g")
    import gauge_contract

    assert (cls.__name__, cls.__module__) == ("G", made.package)
    assert issubclass(cls, gauge_contract.FromOne)
    assert cls.__mro__[2] is sys.modules[made.package].G


def test_without_an_adapter_or_a_manifest_an_old_plugin_is_refused_with_the_mend(core):
    """Neither a missing adapter nor a missing manifest is guessed over."""
    assert core("2.0", "1.1", adapter=False).registry.records()[0].state is State.INCOMPATIBLE


def test_an_old_plugin_that_does_not_say_its_version_is_told_to(core):
    """Without a manifest the class is taken for the present version, and the error says why."""
    made = core("2.0", "1.1", manifest=False)
    with pytest.raises(PluginError, match="no measure_all") as caught:
        made.registry.load("gauge", "g")
    assert "1.1 or before is carried if its framework-plugin.toml says so" in str(caught.value)


def test_an_adapter_carries_the_major_before_and_no_other():
    """A row of the table with another adapter is a fault of the core."""
    with pytest.raises(AssertionError, match="the major before"):
        Kind(
            name="gauge",
            group="framework.gauges",
            contract="x:Y",
            version="3.0",
            scopes=frozenset({Scope.WORKER}),
            cardinality=Cardinality.ONE,
            stability=Stability.PROVISIONAL,
            adapter=Adapter(version="1.1", mixin="x:Z"),
        )


def test_a_plan_uses_the_features_of_its_fields_that_are_not_neutral(core):
    """What a plan uses follows from its fields, and must have been declared."""
    import numpy as np

    made = core("1.1", "1.0")
    plugin = made.registry.create("gauge", "g")
    from gauge_contract import GaugePlan

    quiet = GaugePlan(size=1, rows=np.zeros(0))
    loud = GaugePlan(size=1, loud=True, rows=np.ones(2))
    assert features_of(quiet) == set()
    assert features_of(loud) == {"loudness", "rows"}
    check_features(plugin, features_of(quiet), plugin.declares)
    check_features(plugin, features_of(loud), {"loudness", "rows", "more"})
    with pytest.raises(UnsupportedError, match=r"(?s)gauge:g@dist did not declare.*\['rows'\]"):
        check_features(plugin, features_of(loud), {"loudness"})


def test_the_plan_of_a_step_says_what_it_uses():
    """The core's own plan has versioned fields; a runner of the kit checks that they are said."""
    import numpy as np

    from framework.contracts.step import StepPlan
    from framework.errors import IntegrityError
    from framework.testing import ScriptedRunner

    none = np.zeros(0, np.int32)
    rows = dict.fromkeys(("slots", "generations", "num_new", "computed"), none)
    rows["wants_logits"] = np.zeros(0, np.bool_)
    assert features_of(StepPlan(step_id=0, **rows)) == set()
    drafts = StepPlan(step_id=0, draft_ids=np.ones(2, np.int32), lockstep=True, **rows)
    assert features_of(drafts) == {"drafts", "lockstep"}
    with pytest.raises(IntegrityError, match="does not say what it uses"):
        ScriptedRunner().submit(drafts)
