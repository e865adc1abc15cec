"""What `framework plugins new` writes passes its own tests, for every kind with a contract."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from framework.cli.app import build_app
from framework.errors import ConfigError, PluginError
from framework.plugins.kinds import KINDS, find_kind
from framework.scaffold import plugin_source, render, write
from framework.scaffold.names import check_names

ROOT = Path(__file__).parents[2]
WITH_CONTRACT = [kind for kind in KINDS if kind.contract is not None]
RESERVED = [kind for kind in KINDS if kind.contract is None]
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib")
POLICY = find_kind("scheduling_policy")
# As for the tests of this repository: they hold on a slow and busy machine, too.
PATIENT = """from framework.testing.conformance import Suite
from framework.testing.conformance.forks import ForkServer

Suite.slowness = 20.0
Suite.forks = ForkServer()


def pytest_unconfigure():
    Suite.forks.close()
"""


def names_of(kind):
    return f"new_{kind.name}"


def put_on_path(folder: Path, site: Path) -> None:
    """What `pip install` would leave of the distribution in `folder`, without pip."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    (package,) = (path for path in (folder / "src").iterdir() if (path / "__init__.py").exists())
    (site / package.name).symlink_to(package)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    lines = [f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {needed}" for needed in project["dependencies"]]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))
    entries = [
        line
        for group, rows in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in rows.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(entries) + "\n")


@pytest.fixture(scope="module")
def scaffolds(tmp_path_factory):
    """(folder of the distributions, folder to put on the path): one of every kind."""
    folder, site = tmp_path_factory.mktemp("new"), tmp_path_factory.mktemp("site")
    for kind in WITH_CONTRACT:
        names, files = render(kind, names_of(kind))
        write(folder / names.distribution, files)
        put_on_path(folder / names.distribution, site)
    (folder / "conftest.py").write_text(PATIENT)
    return folder, site


def undeclared(part) -> bool:
    """What a plugin does not declare is not checked; whatever else is not is a fault here."""
    return part.tag == "skipped" and "skipped (undeclared)" in (part.get("message") or "")


@pytest.fixture(scope="module")
def results(scaffolds, tmp_path_factory):
    """{kind: {test: "" or what went wrong}}: all of them in one process of pytest."""
    folder, site = scaffolds
    report = tmp_path_factory.mktemp("report") / "junit.xml"
    ended = subprocess.run(
        [sys.executable, *PYTEST, "--junit-xml", report, "--rootdir", folder, folder],
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=290,
    )
    found: dict[str, dict[str, str]] = {kind.name: {} for kind in WITH_CONTRACT}
    for case in ET.parse(report).iter("testcase"):
        kind = case.get("classname", "").partition(".")[0].removeprefix("framework-new-")
        wrong = [f"{part.tag}: {part.get('message')}" for part in case if not undeclared(part)]
        found[kind.replace("-", "_")][case.get("name", "")] = "\n".join(wrong)
    assert ended.returncode in (0, 1), ended.stdout + ended.stderr
    return found


@pytest.mark.parametrize("kind", WITH_CONTRACT, ids=lambda kind: kind.name)
def test_the_tests_of_a_new_plugin_pass_at_once(results, kind):
    """Every clause of the kind's suite is there, and none fails."""
    from framework.testing.conformance import clauses_of, suite_of

    tests = results[kind.name]
    clauses = {clause.id for clause in clauses_of(suite_of(kind.name))}
    assert {name.partition("[")[2].rstrip("]") for name in tests} == clauses
    assert [text for text in tests.values() if text] == []


@pytest.mark.parametrize("kind", WITH_CONTRACT, ids=lambda kind: kind.name)
def test_a_new_plugin_is_short_and_complete(scaffolds, kind):
    """Its class is small; the distribution says its range, its scopes and what it needs."""
    folder = scaffolds[0] / f"framework-new-{kind.name.replace('_', '-')}"
    names, files = render(kind, names_of(kind))
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} >= {
        *files,
        "pyproject.toml",
        "README.md",
        f"src/{names.package}/framework-plugin.toml",
        "tests/test_conformance.py",
    }
    assert len(plugin_source(kind, "short").splitlines()) <= 150
    assert not [path for path, text in files.items() if "${" in text or not text.endswith("\n")]


@pytest.mark.parametrize("kind", WITH_CONTRACT, ids=lambda kind: kind.name)
def test_a_new_plugin_requires_what_it_imports(kind):
    names, files = render(kind, names_of(kind))
    project = tomllib.loads(files["pyproject.toml"])["project"]
    required = {Requirement(line).name for line in project["dependencies"]}
    found = {"framework"}
    for node in ast.walk(ast.parse(files[f"src/{names.package}/__init__.py"])):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    assert required == found - sys.stdlib_module_names


def test_what_is_written_is_clean(scaffolds):
    """ruff finds nothing, under the rules of this repository and seen from where it lies."""
    ruff = [sys.executable, "-m", "ruff"]
    packages = ["framework", *(render(k, names_of(k))[0].package for k in WITH_CONTRACT)]
    rules = ["--config", str(ROOT / "pyproject.toml"), "--config", "src = ['nowhere']"]
    rules += ["--config", f"lint.isort.known-first-party = {packages}"]
    rules += ["--no-cache", str(scaffolds[0])]
    for command in (["check"], ["format", "--check", "--diff"]):
        found = subprocess.run([*ruff, *command, *rules], capture_output=True, text=True)
        assert found.returncode == 0, found.stdout + found.stderr


def invoke(*arguments):
    return CliRunner().invoke(build_app(), ["plugins", "new", *map(str, arguments)])


def test_the_command_says_what_it_wrote_and_what_comes_next(tmp_path):
    ended = invoke("scheduling_policy", "late_first", "--output", tmp_path, "--json")
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    folder = tmp_path / "framework-late-first"
    assert Path(told["folder"]) == folder
    assert told["class"] == "LateFirst"
    assert all((folder / file).is_file() for file in told["files"])
    assert told["next"][2] == "framework plugins conform scheduling_policy:late_first"
    shown = invoke("scheduling_policy", "early_first", "--output", tmp_path).stdout
    assert str(tmp_path / "framework-early-first" / "pyproject.toml") in shown
    assert "pip install -e" in shown


def test_an_existing_folder_is_left_alone(tmp_path):
    folder = tmp_path / "framework-late-first"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    ended = invoke("scheduling_policy", "late_first", "--output", tmp_path)
    assert isinstance(ended.exception, ConfigError)
    assert "exists" in str(ended.exception)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(ConfigError, match="cannot be written"):
        write(tmp_path / "new", {"a.txt": "a", "a.txt/b": "b"})
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken_is_refused(tmp_path):
    ended = invoke("scheduling_policy", "fcfs", "--output", tmp_path)
    assert "scheduling_policy:fcfs@framework has this name already" in str(ended.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", RESERVED, ids=lambda kind: kind.name)
def test_a_reserved_kind_is_refused(kind, tmp_path):
    ended = invoke(kind.name, "mine", "--output", tmp_path)
    assert isinstance(ended.exception, PluginError)
    assert f"kind {kind.name!r} is reserved" in str(ended.exception)
    assert not list(tmp_path.iterdir())


def test_an_unknown_kind_is_refused_with_the_near_one(tmp_path):
    ended = invoke("schedulingpolicy", "mine", "--output", tmp_path)
    assert "did you mean 'scheduling_policy'" in str(ended.exception)
    assert not {kind.name for kind in RESERVED} & {*str(ended.exception).replace(",", "").split()}


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("ShortestFirst", "shortest_first"),
        ("shortest-first", "shortest_first"),
        ("shortest first", "shortest_first"),
        ("2nd", "nd"),
        ("a__b", "a_b"),
        ("../evil", "evil"),
        ("a.b", "a_b"),
        ("x:y", "x_y"),
        ("9", None),
        ("", None),
        ("a" * 61, "a" * 60),
    ],
)
def test_a_bad_name_is_refused_with_a_better_one(name, better):
    with pytest.raises(ConfigError, match="is no name for a plugin") as caught:
        check_names(POLICY, name)
    assert caught.value.mend == (f"try {better!r}" if better else None)


@pytest.mark.parametrize("name", ["class", "async", "none", "true", "off", "auto"])
def test_a_word_that_means_something_else_where_it_is_chosen_is_refused(name):
    """YAML reads `off` as false, and `--tool-parser none` chooses nothing."""
    with pytest.raises(ConfigError, match="is no name for a plugin") as caught:
        check_names(POLICY, name)
    assert caught.value.mend == f"try 'my_{name}'"
    check_names(POLICY, f"my_{name}")


@pytest.mark.parametrize("name", ["plugin_cpu", "plugin_xgrammar", "plugin_taken"])
def test_no_distribution_is_replaced(tmp_path, monkeypatch, name):
    """Of another package: `pip install` would take it away.  One of the first party need not be
    installed."""
    info = tmp_path / "framework_plugin_taken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Framework_Plugin.taken\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=f"distribution 'framework-{name.replace('_', '-')}'"):
        check_names(POLICY, name)


def test_a_package_that_is_installed_is_refused(tmp_path, monkeypatch):
    (tmp_path / "framework_taken").mkdir()
    (tmp_path / "framework_taken" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="'framework_taken' is installed already"):
        check_names(POLICY, "taken")


@pytest.mark.parametrize("name", ["exception", "list", "scheduling_policy", "request_arrays", "np"])
def test_the_class_covers_no_other_name(name):
    """A class called Exception, list or like its own base would not run."""
    source = plugin_source(POLICY, name)
    space: dict[str, object] = {}
    exec(compile(source, "plugin", "exec"), {"__name__": "plugin"}, space)
    names, _ = render(POLICY, name)
    assert names.cls in space
    assert len([line for line in source.splitlines() if line.startswith("class ")]) == 1
