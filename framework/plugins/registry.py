"""The registry: what is installed, what may be used, and the way to a class or an instance.

An explicit object that is passed around; there is no other.  Making one reads metadata
and imports no plugin.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from framework.contracts.base import Contract
from framework.errors import ConfigError, FrameworkError, PluginError
from framework.plugins import lookup
from framework.plugins.admission import Admission
from framework.plugins.checks import option_problems, policy_problems, raise_fatal
from framework.plugins.discovery import ad_hoc_records, core_first_party, discover
from framework.plugins.handles import Handle, Journal
from framework.plugins.kinds import KINDS, Cardinality, Kind, Scope, find_kind
from framework.plugins.loading import (
    check_class,
    contract_of,
    load_class,
    log,
)
from framework.plugins.making import make
from framework.plugins.manifests import Facts
from framework.plugins.options import Options
from framework.plugins.ordering import by_rank, in_order
from framework.plugins.policy import Policy
from framework.plugins.records import Problem, Record, State
from framework.shown import in_a_line, printable


class PluginRegistry:
    """All plugins of one process.

    policy: default, the FRAMEWORK_PLUGINS variables of the environment.
    ad_hoc: {"kind:name": "module:attr"}.  options: {kind: {name: {key: value}}}.
    scopes: what this process is, by default all; what runs in none of them is not loaded here.
    kinds, search_path (default sys.path), first_party (default: the core's metadata):
    for tests and tools.  slow_import: seconds after which the watchdog names an import.

    options hold secrets in clear.  notes: lines for the start-up log, of what plugins turn off.

    Raises ConfigError for an ad-hoc plugin or a list that cannot be read.  What is wrong
    with plugins is kept in `problems`; `check()` raises what is fatal, and so does the
    first use.
    """

    def __init__(
        self,
        *,
        policy: Policy | None = None,
        ad_hoc: Mapping[str, str] | None = None,
        options: Options | None = None,
        kinds: Sequence[Kind] = KINDS,
        search_path: Sequence[str] | None = None,
        first_party: frozenset[str] | None = None,
        scopes: Iterable[Scope] = tuple(Scope),
        slow_import: float = 10.0,
    ) -> None:
        self.policy = policy if policy is not None else Policy.from_env(os.environ, kinds=kinds)
        if self.policy.no_plugins and ad_hoc:
            raise ConfigError(
                "--no-plugins and ad-hoc plugins exclude each other",
                expected="one of them",
                found=", ".join(ad_hoc),
            )
        self.kinds = tuple(kinds)
        self.scopes = frozenset(scopes)
        self.notes: list[str] = []
        trusted, missing = core_first_party() if first_party is None else (first_party, ())
        self.first_party = trusted
        self.ad_hoc: Mapping[str, str] = ad_hoc or {}
        self.options: Options = options or {}
        self.slow_import = slow_import
        self._admission = Admission(self.policy, self.kinds)
        self._journal = Journal()
        self._lock = threading.RLock()
        self._told: set[str] = set()
        found = discover(self.kinds, path=search_path, trusted=self.first_party)
        self._records = [*found.records, *ad_hoc_records(self.ad_hoc, self.kinds)]
        for record in self._records:
            self._admission.judge(record)
        lookup.note_shared_names(self._records)
        self.problems: tuple[Problem, ...] = (
            *(replace(each, fatal=self.policy.strict) for each in (*missing, *found.problems)),
            *policy_problems(self.policy, self._records, self.first_party),
            *option_problems(self.options, self._records, self.kinds),
        )

    def kind(self, name: str) -> Kind:
        """The row of a kind; PluginError with near matches for an unknown one."""
        return find_kind(name, self.kinds)

    def records(self, kind: str | None = None) -> list[Record]:
        """All records, whatever their state, with the facts of their manifests."""
        wanted = [r for r in self._records if kind is None or r.kind == kind]
        for record in wanted:
            self._admission.inspect(record)
        return wanted

    def check(self) -> None:
        """Raise PluginError for all that is fatal; log the rest as warnings, once."""
        for problem in self.problems:
            if not problem.fatal:
                self._tell(problem.message)
        raise_fatal(self.problems)
        self._check_records([r for r in self._records if r.named_by is not None])

    def candidates(self, kind: str) -> list[Record]:
        """What can be selected, higher rank first, then by name; nothing is imported."""
        self.check()
        self.kind(kind)
        records = self.records(kind)
        self._check_records(records)
        self._note_replaced(records)
        return sorted((r for r in lookup.unreplaced(records) if self._can_run(r)), key=by_rank)

    def selectable(self, kind: str, names: Iterable[str] = ()) -> list[Record]:
        """What may run of a kind, in whatever process: `names`, the operator's choice, alone if
        one of the kind runs at a time; else all that the policy admits, and `names`.

        Raises PluginError for a name that `find` refuses, and, where many run, for two claims.
        """
        chosen = [self._resolve(kind, name, named=True) for name in names]
        many = self.kind(kind).cardinality is Cardinality.MANY
        if chosen and not many:
            return chosen
        self.check()
        records = self.records(kind)
        self._check_records(records)
        found = [r for r in lookup.unreplaced(records) if r.usable]
        if many:
            by_name = {r.name: r for r in chosen}
            for record in found:
                if record.name not in by_name:
                    by_name[record.name] = self._resolve(kind, record.name)
            found = list({id(record): record for record in by_name.values()}.values())
        return found

    def activated(self, kind: str, names: Iterable[str] = ()) -> list[Record]:
        """What runs in this process of a kind of which many run: all that the policy admits,
        and `names`, the operator's choice; ordered by before / after, rank, name.

        Raises PluginError for a name with two claims and for a cycle.
        """
        records = self.selectable(kind, names)
        self._note_replaced(self.records(kind))
        return in_order([record for record in records if self._can_run(record)])

    def create_activated(
        self, kind: str, names: Iterable[str] = ()
    ) -> list[tuple[Record, Contract]]:
        """Instances of what `activated` gives.

        One that fails is fatal if it is first-party or was named exactly, or if the policy
        is strict; otherwise it is left out with a warning, and what it registered is undone.
        """
        listed = list(names)
        made = []
        for record in self.activated(kind, listed):
            try:
                made.append((record, self.create_record(record)))
            except FrameworkError as error:
                chosen = record in (c for name in listed for c in lookup.claims([record], name))
                if chosen or record.first_party or record.named_exactly or self.policy.strict:
                    raise
                self._tell(f"{record.key} is left out: {error.message}")
        return made

    def find(self, kind: str, name: str, *, named: bool = False) -> Record:
        """The record of `name` or `name@distribution`, without an import.

        named: the operator wrote this name in the configuration, which admits a plugin
        that is denied only until named.  Raises PluginError for an unknown name (with near
        matches and the line to install), a denied or unusable plugin, and two claims.
        """
        found = self._resolve(kind, name, named=named)
        if not self._can_run(found):
            raise lookup.elsewhere(found, self.kind(kind), self.scopes)
        self._note_replaced(self.records(kind))
        return found

    def note_off(self, feature: str, by: Record, reason: str) -> None:
        """Write down, once, that a plugin turned something off."""
        line = in_a_line(f"{feature} is off because of plugin {by.key}: {reason}")
        if line not in self.notes:
            self.notes.append(line)

    def load(self, kind: str, name: str, *, named: bool = False) -> type[Contract]:
        """The class of a plugin; imports its module.  Raises PluginError, as `find` does."""
        return self.load_record(self.find(kind, name, named=named))

    def create(self, kind: str, name: str, *, named: bool = False) -> Contract:
        """A new instance with validated options.  Raises PluginError, as `find` does."""
        return self.create_record(self.find(kind, name, named=named))

    def load_record(self, record: Record) -> type[Contract]:
        """The class of a record that `find` or `candidates` gave."""
        kind = self.kind(record.kind)
        with self._lock:
            if not record.usable:  # one that failed to start is loaded, and stays failed
                raise lookup.unusable(record)
            if record.cls is not None:
                return record.cls
            if record.state is State.LOADING:
                raise PluginError(f"plugin {record.key} loads itself", plugin=record.key)
            if not self._can_run(record):
                raise lookup.elsewhere(record, kind, self.scopes)
            with self.transaction():
                cls = load_class(record, kind, self.slow_import)
            if record.facts is None:
                scopes = tuple(sorted(scope.value for scope in kind.scopes))
                record.facts = Facts(kind=record.kind, name=record.name, scopes=scopes)
            return cls

    def create_record(
        self, record: Record, options: Mapping[str, object] | None = None
    ) -> Contract:
        """A new instance of a record.  An error of its constructor is a PluginError.

        options: {key: value} in place of those that the registry was given.
        """
        cls = self.load_record(record)
        given = self.options.get(record.kind, {}).get(record.name)
        return make(record, cls, given if options is None else options, self._journal)

    def register(self, kind: str, name: str, cls: type[Contract], owner: str) -> Handle:
        """Add a class of this process; `handle.close()` takes it back.

        owner: the distribution, or any name for who does it.  The deny list applies.
        Raises PluginError for a wrong class and for a name that the owner has already.
        """
        row = self.kind(kind)
        record = Record(
            kind=kind,
            name=name,
            distribution=owner,
            version=None,
            value=f"{cls.__module__}:{cls.__qualname__}",
            origin="registered",
        )
        if any(other.key == record.key for other in self._records):
            raise PluginError(
                f"plugin {record.key} is registered already",
                plugin=record.key,
                distribution=owner,
                mend="close the handle of the first registration, or choose another name",
            )
        record.cls = check_class(record, row, contract_of(row), cls)
        self._admission.judge(record)
        if record.state is State.DISCOVERED:
            record.move(State.LOADED)
        self._records.append(record)
        handle = Handle(record, lambda: self._records.remove(record))
        self._journal.note(handle)
        return handle

    def log_states(self) -> None:
        """Log what became of each plugin, once per state; nothing of those nobody used."""
        for line in lookup.state_lines(self._records):
            self._tell(line, logging.INFO)

    def transaction(self) -> AbstractContextManager[None]:
        """Undo all that this thread registers within, should it end with an exception."""
        return self._journal.transaction()

    def _check_records(self, records: Iterable[Record]) -> None:
        """A plugin that failed or does not fit: fatal if named exactly or strict."""
        for record in records:
            self._admission.inspect(record)
            if record.state in (State.FAILED, State.INCOMPATIBLE):
                if record.named_exactly or self.policy.strict:
                    raise lookup.unusable(record)
                self._tell(f"{record.key} is {record.state}: {record.reason}")

    def _resolve(self, kind: str, name: str, *, named: bool = False) -> Record:
        self.check()
        row, records = self.kind(kind), self.records(kind)
        lift = self._admission.lift if named else None
        return lookup.resolve(name, row, records, first_party=self.first_party, lift=lift)

    def _note_replaced(self, records: Sequence[Record]) -> None:
        for record, other in lookup.replaced(records):
            self.note_off(record.key, other, "it replaces it")

    def _can_run(self, record: Record) -> bool:
        return record.usable and bool(self.scopes & record.scopes(self.kind(record.kind)))

    def _tell(self, message: str, level: int = logging.WARNING) -> None:
        if message not in self._told:
            self._told.add(message)
            log.log(level, "%s", printable(message))
