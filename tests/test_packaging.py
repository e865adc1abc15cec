"""One view over every pyproject and every manifest of the repository."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from framework.plugins.kinds import KINDS
from framework.plugins.manifests import FILE_NAME, Manifest, parse
from framework.plugins.policy import normalize

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "plugins_builtin",
    "plugins_builtin/structured",
    "platforms",
    "attention_backends",
    "io_processors",
    "endpoints",
)
# Folder -> name in distribution and import.
SHORT_NAMES = {"torch_runner": "torch", "participant": "structured"}
IMPORT_TO_DISTRIBUTION = {
    "PIL": "pillow",
    "google": "protobuf",
    "importlib_metadata": "importlib-metadata",
    "opentelemetry": "opentelemetry-api",
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
# Needed without an import of one's own: what others import for us.
WITHOUT_IMPORT: dict[str, set[str]] = {
    # One import package of several distributions.
    "framework-plugin-opentelemetry": {
        "opentelemetry-sdk",
        "opentelemetry-exporter-otlp-proto-http",
    },
    # What the platform ranks first.
    "framework-plugin-cuda": {"framework-plugin-triton"},
    # What puts the backend to work.
    "framework-plugin-llguidance": {"framework-plugin-structured"},
    "framework-plugin-outlines-core": {"framework-plugin-structured"},
    "framework-plugin-xgrammar": {"framework-plugin-structured"},
}
# Too heavy for the environment of development: the library wants triton.  Their tests run where
# they are installed.
APART = {"plugins_builtin/structured/xgrammar"}
# In the repository and yet not first-party: they act as soon as they are allowed, so that it is for
# the operator to name them.
OPT_IN = {"framework-plugin-opentelemetry"}
KINDS_BY_GROUP = {kind.group: kind for kind in KINDS}


@dataclass(frozen=True)
class Project:
    """One folder with a pyproject.toml."""

    folder: Path

    @cached_property
    def table(self) -> dict:
        return tomllib.loads((self.folder / "pyproject.toml").read_text())

    @property
    def name(self) -> str:
        return self.table["project"]["name"]

    @property
    def version(self) -> str:
        return self.table["project"]["version"]

    @property
    def requirements(self) -> dict[str, Requirement]:
        lines = self.table["project"].get("dependencies", [])
        return {normalize(r.name): r for r in map(Requirement, lines)}

    @property
    def package(self) -> Path:
        """The folder of the import package."""
        if self.folder == ROOT:
            return ROOT / "framework"
        (package,) = (p for p in (self.folder / "src").iterdir() if (p / "__init__.py").exists())
        return package

    @cached_property
    def manifest(self) -> Manifest:
        path = self.package / FILE_NAME
        return parse(str(path), path.read_bytes())

    @property
    def entry_points(self) -> dict[str, dict[str, str]]:
        return self.table["project"].get("entry-points", {})


CORE = Project(ROOT)
WORKSPACE = [
    Project(path.parent)
    for name in FOLDERS
    for path in sorted(ROOT.glob(f"{name}/*/pyproject.toml"))
]
EXAMPLES = [Project(path.parent) for path in sorted(ROOT.glob("examples_plugins/*/pyproject.toml"))]


def label(project: Project) -> str:
    return str(project.folder.relative_to(ROOT))


in_workspace = pytest.mark.parametrize("project", WORKSPACE, ids=label)
outside = pytest.mark.parametrize("project", EXAMPLES, ids=label)
plugins = pytest.mark.parametrize("project", [*WORKSPACE, *EXAMPLES], ids=label)
everywhere = pytest.mark.parametrize("project", [CORE, *WORKSPACE], ids=lambda p: p.name)


def imports(package: Path, *, typing: bool = True, kit: bool = True) -> set[str]:
    """Top-level modules that a package imports anywhere, the standard library left out.

    typing: with what stands under `if TYPE_CHECKING`.  kit: with framework/testing.
    """
    found: set[str] = set()
    for path in package.rglob("*.py"):
        if not kit and ROOT / "framework" / "testing" in path.parents:
            continue
        waiting: list[ast.AST] = [ast.parse(path.read_text(), str(path))]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
            guard = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
            waiting += node.orelse if guard and not typing else ast.iter_child_nodes(node)
    return found - set(sys.stdlib_module_names)


def distribution_of(module: str) -> str:
    """The distribution that a top-level module comes from."""
    for project in WORKSPACE:
        if module == project.package.name:
            return normalize(project.name)
    return normalize(IMPORT_TO_DISTRIBUTION.get(module, module))


def test_every_plugin_folder_is_a_project():
    """A folder beside the others that has sources has a pyproject.toml too."""
    assert len(WORKSPACE) >= 6
    for name in FOLDERS:
        for folder in (ROOT / name).glob("*/src"):
            assert (folder.parent / "pyproject.toml").exists(), folder


@in_workspace
def test_folder_distribution_and_import_name_agree(project):
    """Folder x_y is distribution framework-plugin-x-y with the package framework_x_y."""
    short = SHORT_NAMES.get(project.folder.name, project.folder.name)
    assert project.name == "framework-plugin-" + short.replace("_", "-")
    assert project.package.name == f"framework_{short}"
    assert (project.folder / "README.md").exists()


@everywhere
def test_build_backend_is_setuptools(project):
    """All distributions are built alike."""
    assert project.table["build-system"]["build-backend"] == "setuptools.build_meta"


@everywhere
def test_versions_move_in_lockstep(project):
    """All of the workspace has one version, and first-party requirements pin it."""
    assert project.version == CORE.version
    ours = {normalize(p.name) for p in (CORE, *WORKSPACE)}
    for name, requirement in project.requirements.items():
        if name in ours:
            wanted = ">=0.1" if project.name in OPT_IN else f"=={CORE.version}"
            assert str(requirement.specifier) == wanted, requirement


def test_core_wheel_holds_only_the_core():
    """The core packages framework and nothing of a plugin."""
    find = CORE.table["tool"]["setuptools"]["packages"]["find"]
    assert find["include"] == ["framework", "framework.*"]


def test_core_knows_no_plugin():
    """The core depends on no plugin and imports none, nor torch; what it brings itself
    (policies, the manager of full attention) comes through entry points like all others."""
    names = {normalize(p.name) for p in WORKSPACE}
    assert not names & set(CORE.requirements)
    modules = imports(ROOT / "framework")
    assert not {m for m in modules if m.startswith("framework_")}
    heavy = {"torch", "transformers", "triton", "fastapi"}
    assert not imports(ROOT / "framework", typing=False, kit=False) & heavy
    # Whoever runs the suite of endpoints has fastapi.
    assert not imports(ROOT / "framework", typing=False) & (heavy - {"fastapi"})


def test_first_party_extra_is_the_workspace():
    """The extra that the policy trusts names exactly the plugins of this repository, those left
    out that the operator has to name."""
    extra = CORE.table["project"]["optional-dependencies"]["first-party"]
    assert sorted(extra) == sorted({p.name for p in WORKSPACE} - OPT_IN)


def test_development_installs_every_distribution():
    """dev-requirements.txt has one -e line for each distribution of the workspace."""
    lines = (ROOT / "dev-requirements.txt").read_text().splitlines()
    editable = {line.removeprefix("-e ").strip() for line in lines if line.startswith("-e ")}
    assert editable == {".", *(label(p) for p in WORKSPACE)} - APART


@everywhere
def test_entry_points_equal_manifest_rows(project):
    """Each entry point has a row in the manifest and each row an entry point."""
    for group, rows in project.entry_points.items():
        if group.startswith("framework"):
            assert group in KINDS_BY_GROUP, group
            assert all(re.fullmatch(r"[\w.]+:\w+", value) for value in rows.values())
            assert all(value.startswith(project.package.name) for value in rows.values())
    declared = {
        (KINDS_BY_GROUP[group].name, name)
        for group, rows in project.entry_points.items()
        if group in KINDS_BY_GROUP
        for name in rows
    }
    assert {(row.kind, row.name) for row in project.manifest.plugins} == declared


@plugins
def test_contract_ranges_hold_the_contracts_of_this_core(project):
    """What is in the tree works with the contracts in the tree."""
    versions = {kind.name: kind.version for kind in KINDS}
    for row in project.manifest.plugins:
        assert row.accepts(versions[row.kind]), row


@plugins
def test_manifest_and_type_marker_are_packaged(project):
    """The manifest is in the wheel, not only in the tree."""
    data = project.table["tool"]["setuptools"]["package-data"][project.package.name]
    assert FILE_NAME in data
    if project in WORKSPACE:
        assert "py.typed" in data


@in_workspace
def test_declared_dependencies_equal_imports(project):
    """Whatever a plugin imports it declares, and it declares nothing else."""
    found = {distribution_of(m) for m in imports(project.package)}
    found -= {normalize(project.name)}
    declared = set(project.requirements) - WITHOUT_IMPORT.get(project.name, set())
    assert "framework" in declared
    assert found | {"framework"} == declared


def test_core_declares_what_it_imports():
    """The core's dependencies are what framework/ imports at run time, and extras for what
    it can do without.

    `framework/testing` may also use pytest, and fastapi for endpoints: who runs the kit has them.
    """
    found = {distribution_of(m) for m in imports(ROOT / "framework", typing=False)}
    extras = CORE.table["project"]["optional-dependencies"].values()
    optional = {normalize(Requirement(line).name) for lines in extras for line in lines}
    assert found - {"framework", "pytest", "fastapi"} <= set(CORE.requirements) | optional


@outside
def test_examples_depend_on_the_core_without_a_cap(project):
    """A third party writes a lower bound; the contract range decides about the upper end."""
    specifiers: SpecifierSet = project.requirements["framework"].specifier
    assert [s.operator for s in specifiers] == [">="]
    assert specifiers.contains(CORE.version)
    assert normalize(project.name) not in {normalize(p.name) for p in WORKSPACE}
