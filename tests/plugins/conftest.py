"""Tiny distributions as plain folders, and a kind of their own to live on."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from framework.plugins.kinds import KINDS, Cardinality, Kind, Scope, Stability, ThirdParty
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry

CONTRACT = """
from abc import abstractmethod
from dataclasses import dataclass
from framework.contracts.base import Contract, Query, Supported, versioned

@dataclass(frozen=True, slots=True, kw_only=True)
class ThingQuery(Query):
    size: int = versioned(since="1.0")
    colour: str = versioned(since="1.1", neutral="grey")
    smell: str = versioned(since="1.1", neutral="none", hint=True)

def default_query():
    return ThingQuery(size=5)

class Thing(Contract):
    kind = "thing"
    @abstractmethod
    def answer(self, query): ...

class Extra(Contract):
    kind = "extra"
"""

THING = """
from framework.contracts.base import Rejected, Rejection, Supported
from thing_contract import Thing

class {cls}(Thing):
    def answer(self, query):
        if query.size <= {limit}:
            return Supported(note="fits")
        return Rejected((Rejection(code="size", field="size", found=query.size,
                                   needed="at most {limit}", remedy="ask for less"),),
                        final={final})
"""

COUNTER = itertools.count()


def _kind(name: str, cls: str, cardinality: Cardinality, third: ThirdParty, *needs: Scope) -> Kind:
    return Kind(
        name=name,
        group=f"framework.{name}s",
        contract=f"thing_contract:{cls}",
        version="1.1",
        scopes=frozenset({Scope.WORKER, Scope.ENGINE_CORE}),
        needs=frozenset(needs),
        cardinality=cardinality,
        third_party=third,
        stability=Stability.PROVISIONAL,
    )


@dataclass
class House:
    """Builds distributions below one folder and registries that see only them."""

    root: Path
    syspath: Callable[[str], None]
    kinds: tuple[Kind, ...]
    paths: list[str] = field(default_factory=list)

    def add(
        self,
        name: str,
        plugins: Mapping[str, str] | str,
        code: str = "",
        manifest: str | None = None,
        version: str = "1.0",
        folder: str | None = None,
        package: str | None = None,
    ) -> str:
        """A distribution; returns its import name.  plugins: {"group name": "Attr"} without
        the prefix of the group, or the text of entry_points.txt; PKG is the import name."""
        package = package or f"pkg_{next(COUNTER)}"
        site = self.root / (folder or f"site{next(COUNTER)}")
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text(code)
        if manifest is not None:
            (site / package / "framework-plugin.toml").write_text(manifest)
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if not isinstance(plugins, str):
            lines = []
            for key, attribute in plugins.items():
                group, plugin = key.split()
                lines += [f"[framework.{group}]", f"{plugin} = {package}:{attribute}"]
            plugins = "\n".join(lines)
        (info / "entry_points.txt").write_text(plugins.replace("PKG", package))
        if str(site) not in self.paths:
            self.paths.append(str(site))
            self.syspath(str(site))
        return package

    def thing(
        self, name: str, distribution: str, limit: int = 10, final: bool = False, **facts: Any
    ) -> str:
        """A distribution with one `thing` that serves sizes up to `limit`, and rejects others,
        finally or not.  facts: keys of its manifest; without any it has none."""
        manifest = self.manifest("thing", name, **facts) if facts else None
        code = THING.format(cls="T", limit=limit, final=final)
        return self.add(distribution, {f"things {name}": "T"}, code, manifest)

    @staticmethod
    def manifest(kind: str, name: str, contract: str = ">=1.0,<2", **facts: Any) -> str:
        """Text of a manifest with one row."""
        import json

        rows = [f"{key} = {json.dumps(value)}" for key, value in facts.items()]
        head = f'schema = 1\n[[plugin]]\nkind = "{kind}"\nname = "{name}"\n'
        return head + f'contract = "{contract}"\n' + "\n".join(rows) + "\n"

    def registry(
        self, env: Mapping[str, str] | None = None, no_plugins: bool = False, **more: Any
    ) -> PluginRegistry:
        """A registry over the house, under the policy of `env`."""
        policy = Policy.from_env(env or {}, no_plugins=no_plugins, kinds=self.kinds)
        more.setdefault("first_party", frozenset())
        return PluginRegistry(policy=policy, kinds=self.kinds, search_path=self.paths, **more)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """A House whose modules are forgotten after the test."""
    before = set(sys.modules)
    contracts = tmp_path / "contracts"
    contracts.mkdir()
    (contracts / "thing_contract.py").write_text(CONTRACT)
    monkeypatch.syspath_prepend(str(contracts))
    kinds = (
        *KINDS,
        _kind("thing", "Thing", Cardinality.ONE, ThirdParty.ALLOWED, Scope.WORKER),
        _kind("extra", "Extra", Cardinality.MANY, ThirdParty.DENIED),
    )
    yield House(tmp_path, monkeypatch.syspath_prepend, kinds)
    for name in set(sys.modules) - before:
        if name.partition(".")[0].startswith(("pkg_", "thing_contract")):
            del sys.modules[name]


@pytest.fixture
def extra_code() -> str:
    """Code of a package with one `extra` named E."""
    return "from thing_contract import Extra\nclass E(Extra):\n    pass\n"
