"""Facts without an import: `framework-plugin.toml` beside a package's top-level `__init__`.

schema = 1

[[plugin]]
kind = "attention_backend"
name = "sdpa"
contract = ">=1.0,<2"           # versions of the kind's contract that it works with
knows = "1.0"                   # newest version whose fields it understands; default:
                                # the lower end of `contract`
scopes = ["worker"]             # default: those of the kind
rank = 10                       # higher comes first; default 0
replaces = ["other"]            # of the same kind, as are `before` and `after`
before = []
after = []
architectures = []              # of a model
route_prefix = "/name"          # of an endpoint
[plugin.facts]                  # anything else, for people and for the kind's own use
[[plugin.config]]               # a value that it proposes for the engine's configuration
field = "enable_prefix_caching"
value = false
reason = "its pages cannot be shared"
"""

from __future__ import annotations

import functools
import importlib.util
import os
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from framework.errors import PluginError
from framework.plugins.kinds import KINDS, Kind
from framework.plugins.near import did_you_mean

FILE_NAME = "framework-plugin.toml"
SCHEMA = 1
LARGEST = 1 << 20
"""Bytes; a list reads the manifests of hundreds of plugins."""


class ConfigProposal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value for a field of the configuration.  reason: one sentence for the operator."""

    field: str
    value: Any
    reason: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a package says of one plugin.  contract: None when no manifest said it."""

    kind: str
    name: str
    contract: str | None = None
    knows: str | None = None
    scopes: tuple[str, ...] = ()
    rank: int = 0
    replaces: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    route_prefix: str | None = None
    facts: dict[str, Any] = {}
    config: tuple[ConfigProposal, ...] = ()

    def accepts(self, version: str) -> bool:
        """Whether the contract range holds `version`; an unknown range is not refused here,
        the class is checked once it is loaded."""
        return self.contract is None or _holds(self.contract, version)

    def fits(self, kind: Kind) -> str | None:
        """The contract version by which the plugin can be used: the kind's own, else the one
        that the kind's adapter carries, else None."""
        versions = [kind.version, *([kind.adapter.version] if kind.adapter else [])]
        return next((version for version in versions if self.accepts(version)), None)

    def knows_until(self, kind: Kind) -> tuple[int, int]:
        """The newest contract version whose query fields the plugin understands.

        Without a manifest that is the first version of the kind's major.
        """
        if self.knows is not None:
            version = Version(self.knows)
        elif self.contract is not None:
            version = _lower_end(self.contract) or Version("0")
        else:
            version = Version(kind.version.split(".")[0])
        return version.major, version.minor

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One file.  path: for messages."""

    path: str
    plugins: tuple[Facts, ...]

    def find(self, kind: str, name: str) -> Facts:
        """The row of a plugin; PluginError with near matches when there is none."""
        for row in self.plugins:
            if (row.kind, row.name) == (kind, name):
                return row
        known = [f"{row.kind}:{row.name}" for row in self.plugins]
        wanted = f"{kind}:{name}"
        raise PluginError(
            f"{self.path} has no [[plugin]] for {wanted!r}{did_you_mean(wanted, known)}",
            expected="one row per entry point",
            found=", ".join(known) or "no rows",
            mend="add the row, or correct its kind and name",
        )


# Hundreds of manifests say one of a few ranges, and reading one takes 0.2 ms.
@functools.lru_cache(maxsize=256)
def _holds(contract: str, version: str) -> bool:
    return SpecifierSet(contract).contains(version, prereleases=True)


@functools.lru_cache(maxsize=256)
def _lower_end(contract: str) -> Version | None:
    """The highest version below which the range holds nothing."""
    ends = [
        Version(spec.version.removesuffix(".*"))
        for spec in SpecifierSet(contract)
        if isinstance(spec, Specifier) and spec.operator in (">=", ">", "==", "~=", "===")
    ]
    return max(ends, default=None)


def locate(module: str) -> tuple[str, bytes] | None:
    """Path and content of the manifest of a module's top-level package, or None.

    Asks the import system where the package is; imports nothing.  A module that is no
    package, or a namespace package, has no place for a manifest.
    """
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    path = os.path.join(next(iter(spec.submodule_search_locations)), FILE_NAME)
    read = getattr(spec.loader, "get_data", None)  # also reads from a zip file
    if read is None:
        return None
    if os.path.exists(path) and not os.path.isfile(path):  # to read a pipe is to wait for ever
        raise PluginError(f"{path}: cannot be read: it is no file")
    try:
        if os.path.exists(path) and os.path.getsize(path) > LARGEST:
            raise PluginError(f"{path}: cannot be read: it has more than {LARGEST} bytes")
        data: bytes = read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not os.path.lexists(path):
            return None
        raise PluginError(f"{path}: cannot be read: {error}") from error
    return path, data


def parse(path: str, data: bytes, kinds: Sequence[Kind] = KINDS) -> Manifest:
    """Read a manifest; PluginError that names file, key and near matches."""
    try:
        table = tomllib.loads(data.decode("utf-8-sig"))  # some editors begin a file with a mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PluginError(f"{path}: not a TOML file in UTF-8: {error}") from error
    _check_keys(path, "", table, ("schema", "plugin"))
    schema = table.get("schema")
    if schema != SCHEMA or type(schema) is not int:  # true and 1.0 are equal to 1
        raise PluginError(
            f"{path}: key 'schema' is wrong",
            expected=f"schema = {SCHEMA}",
            found=table.get("schema", "nothing"),
        )
    rows = table.get("plugin", [])
    if not isinstance(rows, list):
        raise PluginError(f"{path}: key 'plugin' is wrong", expected="[[plugin]] tables")
    plugins = tuple(
        _parse_row(path, f"plugin[{index}]", row, kinds) for index, row in enumerate(rows)
    )
    seen: set[tuple[str, str]] = set()
    for index, row in enumerate(plugins):
        if (row.kind, row.name) in seen:
            raise PluginError(f"{path}: plugin[{index}]: {row.kind}:{row.name} is there twice")
        seen.add((row.kind, row.name))
    return Manifest(path=path, plugins=plugins)


# A process makes several registries, and many in tests; the same bytes mean the same.
_parsed = functools.lru_cache(maxsize=256)(parse)


def _check_keys(path: str, where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise PluginError(
                f"{path}: unknown key {where}{key!r}{did_you_mean(key, known)}",
                expected=f"one of {', '.join(known)}",
                found=key,
            )


def _parse_row(path: str, where: str, row: object, kinds: Sequence[Kind]) -> Facts:
    if not isinstance(row, dict):
        raise PluginError(f"{path}: {where} is not a table", expected="[[plugin]] tables")
    _check_keys(path, f"{where}.", row, Facts.__struct_fields__)
    for key in ("kind", "name", "contract"):
        if key not in row:
            raise PluginError(f"{path}: {where} lacks the key {key!r}")
    try:
        facts = msgspec.convert(row, Facts)
    except (msgspec.ValidationError, RecursionError) as error:
        raise PluginError(f"{path}: {where}: {error}") from error
    kind = next((kind for kind in kinds if kind.name == facts.kind), None)
    if kind is None:
        names = [kind.name for kind in kinds]
        raise PluginError(
            f"{path}: {where}.kind: unknown kind {facts.kind!r}{did_you_mean(facts.kind, names)}",
            expected=f"one of {', '.join(names)}",
            found=facts.kind,
        )
    _check_versions(path, where, facts)
    allowed = sorted(scope.value for scope in kind.scopes)
    for scope in facts.scopes:
        if scope not in allowed:
            raise PluginError(
                f"{path}: {where}.scopes: kind {kind.name!r} has no scope {scope!r}"
                f"{did_you_mean(scope, allowed)}",
                expected=f"some of {', '.join(allowed)}",
                found=scope,
            )
    return facts if facts.scopes else msgspec.structs.replace(facts, scopes=tuple(allowed))


def _check_versions(path: str, where: str, facts: Facts) -> None:
    try:
        lower = _lower_end(facts.contract or "")
    except (InvalidSpecifier, InvalidVersion) as error:
        raise PluginError(
            f"{path}: {where}.contract is no range of versions: {error}",
            expected='a range such as ">=1.0,<2"',
            found=facts.contract,
        ) from error
    if lower is None:
        raise PluginError(
            f"{path}: {where}.contract has no lower end",
            expected='a range such as ">=1.0,<2"',
            found=facts.contract,
            mend="start it with the contract version that the plugin was written for",
        )
    try:
        Version(facts.knows or "0")
    except InvalidVersion as error:
        raise PluginError(
            f"{path}: {where}.knows is no version", expected='"1.0"', found=facts.knows
        ) from error


class ManifestReader:
    """Reads each manifest at most once; a broken file is reported for each of its plugins."""

    def __init__(self, kinds: Sequence[Kind] = KINDS) -> None:
        self._kinds = tuple(kinds)
        self._known: dict[str, Manifest | PluginError | None] = {}

    def facts(self, kind: str, name: str, value: str) -> Facts | None:
        """Facts of the plugin at `value` ("module:attr"); None without a manifest.

        Raises PluginError for a wrong file or a missing row.
        """
        top = value.partition(":")[0].partition(".")[0].strip()
        if top not in self._known:
            self._known[top] = self._read(top)
        manifest = self._known[top]
        if isinstance(manifest, PluginError):
            raise manifest
        return manifest.find(kind, name) if manifest else None

    def _read(self, top: str) -> Manifest | PluginError | None:
        try:
            found = locate(top)
            return _parsed(*found, self._kinds) if found else None
        except PluginError as error:
            return error
