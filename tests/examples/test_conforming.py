"""Every example is found through its entry point, is short, and keeps the promises of its kind."""

from __future__ import annotations

import ast
import json
import tomllib

import pytest

from framework.plugins.kinds import KINDS, Stability
from framework.testing.conformance.catalogue import SUITES
from tests.examples.conftest import EXAMPLES

KIND_OF_GROUP = {kind.group: kind.name for kind in KINDS}
LONGEST = 100


def plugins(example):
    """kind:name@distribution of what an example brings."""
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    return [
        f"{KIND_OF_GROUP[group]}:{name}@{project['name']}"
        for group, rows in project["entry-points"].items()
        for name in rows
    ]


PLUGINS = [plugin for example in EXAMPLES for plugin in plugins(example)]

CHECKS = """
import json
from framework.testing.conformance import Status, Suite, check
from framework.testing.conformance.forks import ForkServer
from tests.examples.named import NamedSuite

Suite.forks = ForkServer()
for plugin in {plugins!r}:
    suite = NamedSuite if plugin.startswith("model_source:named") else None
    report = check(plugin, suite=suite, slowness=20.0)
    bad = (Status.FAILED, Status.NO_DEVICE)
    wrong = [f"{{o.clause.id}}: {{o.message}}" for o in report.outcomes if o.status in bad]
    print("REPORT", json.dumps([plugin, report.conformant, wrong, report.counts()]))
"""


@pytest.fixture(scope="module")
def reports(run):
    """{plugin: (conformant, what went wrong, counts)}, of one process."""
    lines = run(script=CHECKS.format(plugins=PLUGINS)).splitlines()
    rows = [json.loads(line.removeprefix("REPORT ")) for line in lines if line[:6] == "REPORT"]
    return {plugin: rest for plugin, *rest in rows}


def test_there_is_an_example_of_every_kind_with_a_suite():
    assert {plugin.partition(":")[0] for plugin in PLUGINS} >= set(SUITES)


def test_a_stable_kind_has_a_suite():
    assert {kind.name for kind in KINDS if kind.stability is Stability.STABLE} <= set(SUITES)


def test_all_are_found_through_their_entry_points(run):
    rows = json.loads(run("plugins", "list", "--json"))
    found = {f"{row['kind']}:{row['name']}@{row['distribution']}": row for row in rows}
    assert set(PLUGINS) <= set(found)
    assert all(found[plugin]["facts"] for plugin in PLUGINS)


FIRST = """
import json
from framework.plugins import PluginRegistry
from framework.plugins.kinds import KINDS, Cardinality

registry = PluginRegistry()
one = [kind.name for kind in KINDS if kind.cardinality is not Cardinality.MANY]
found = {kind: registry.candidates(kind) for kind in one if registry.records(kind)}
print(json.dumps({kind: records[0].name for kind, records in found.items() if records}))
"""


def test_to_install_is_not_to_use(run):
    """Where one plugin is taken, the first is the same as without the examples."""
    assert json.loads(run(script=FIRST)) == json.loads(run(script=FIRST, env={"PYTHONPATH": ""}))


@pytest.mark.parametrize("plugin", PLUGINS)
def test_it_conforms(reports, plugin):
    """No clause fails, neither a MUST nor a SHOULD, and none is left out for want of a device."""
    conformant, wrong, counts = reports[plugin]
    assert wrong == []
    assert conformant
    assert counts["passed"] >= 20


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_it_is_short_and_has_a_readme(example):
    """Under 100 lines, empty ones and docstrings aside."""
    assert (example / "README.md").read_text().count("pip install ./examples_plugins/") == 1
    assert sum(code_lines(path.read_text()) for path in example.glob("src/**/*.py")) < LONGEST


def code_lines(source):
    """Lines with code on them."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if text and isinstance(node.value.value, str):
            docs |= set(range(node.lineno, node.end_lineno + 1))
    lines = enumerate(source.splitlines(), 1)
    return len([at for at, line in lines if at not in docs and line.strip()[:1] not in ("", "#")])
