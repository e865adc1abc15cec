"""Templates: one folder per kind, which holds all that differs between kinds.

    templates/common/          files of every distribution
    templates/KIND/plugin.py.txt   the module with a smallest class that works
    templates/KIND/about.toml      summary, requires, test_requires, imports, suite

about.toml:
    summary         one sentence on what the class does
    requires        distributions that the module needs beside the core
    test_requires   distributions that the kind's suite needs
    stdlib, imports "from" lines for the head of the test
    suite           body of the test's class: what the suite must know of the plugin
    manifest        further lines of the plugin's row in its manifest
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from string import Template

import msgspec
from packaging.version import Version

import framework
from framework.errors import PluginError
from framework.plugins.kinds import Kind, known_version
from framework.scaffold.names import Names, check_names

COMMON = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "src/{package}/framework-plugin.toml": "framework-plugin.toml.txt",
    "tests/test_conformance.py": "test_conformance.py.txt",
}
MODULE = "src/{package}/__init__.py"


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """See the module's words."""

    summary: str
    requires: tuple[str, ...] = ()
    test_requires: tuple[str, ...] = ()
    stdlib: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    suite: str = ""
    manifest: str = ""


@dataclass(frozen=True, slots=True)
class _Templates:
    about: About
    module: Template


def render(kind: Kind, name: str) -> tuple[Names, dict[str, str]]:
    """Names of a new plugin, and the files of its distribution: path -> text.

    Raises ConfigError for a name that cannot be used, PluginError for a kind without a contract
    or a template.
    """
    templates = _templates(kind)
    names = check_names(kind, name, templates.module.template)
    words = _words(names, templates.about)
    texts = {path: _read("common", file).substitute(words) for path, file in COMMON.items()}
    texts[MODULE] = templates.module.substitute(words)
    return names, {path.format(package=names.package): text for path, text in texts.items()}


def plugin_source(kind: Kind, name: str) -> str:
    """The module alone.  Raises as `render` does."""
    names, texts = render(kind, name)
    return texts[MODULE.format(package=names.package)]


def _templates(kind: Kind) -> _Templates:
    kind.require_contract()
    try:
        about = _read(kind.name, "about.toml").template
        module = _read(kind.name, "plugin.py.txt")
    except FileNotFoundError as error:
        raise PluginError(
            f"this release has no template for kind {kind.name!r}",
            mend=f"write the class by hand; its contract is {kind.contract}",
        ) from error
    return _Templates(msgspec.convert(tomllib.loads(about), About), module)


def _read(folder: str, file: str) -> Template:
    place = files("framework.scaffold").joinpath("templates", folder, file)
    return Template(place.read_text(encoding="utf-8"))


def _words(names: Names, about: About) -> Mapping[str, str]:
    from framework.testing.conformance.catalogue import suite_of

    release = Version(framework.__version__)
    major, minor = known_version(names.kind)
    suite = suite_of(names.kind.name)
    core = f"framework>={release.major}.{release.minor}"
    place = suite.__module__.removesuffix(".suite")
    return {
        "kind": names.kind.name,
        "group": names.kind.group,
        "contract": names.kind.require_contract().partition(":")[0],
        "range": f">={major}.{minor},<{major + 1}",
        "scopes": _list(sorted(scope.value for scope in names.kind.scopes)),
        "name": names.name,
        "cls": names.cls,
        "package": names.package,
        "distribution": names.distribution,
        "summary": about.summary,
        "requires": _list([core, *about.requires]),
        "test_requires": _list(["pytest>=8", *about.test_requires]),
        "imports": _imports(about, f"from {place} import {suite.__name__}", names),
        "suite": suite.__name__,
        "suite_body": _indented(Template(about.suite), names),
        "manifest": Template(about.manifest.lstrip()).substitute(name=names.name),
    }


def _imports(about: About, suite: str, names: Names) -> str:
    """Those of the standard library, then those of the core and of the package by module."""
    own = Template("\n".join(about.imports)).substitute(cls=names.cls, package=names.package)
    lines = sorted([*own.splitlines(), suite], key=lambda line: line.split()[1])
    return "\n".join([*about.stdlib, *([""] if about.stdlib else []), *lines])


def _indented(body: Template, names: Names) -> str:
    """The lines of a class, after an empty one; "" where there are none."""
    text = body.substitute(name=names.name, cls=names.cls, package=names.package).strip()
    return "\n" + textwrap.indent(text, "    ") + "\n" if text else ""


def _list(items: list[str]) -> str:
    return "[" + ", ".join(f'"{item}"' for item in items) + "]"
