"""Clauses for plugins of every kind: metadata, import, construction."""

from __future__ import annotations

import gc
import inspect
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import importlib_metadata
from packaging.requirements import InvalidRequirement, Requirement

from framework.contracts.base import Contract
from framework.errors import FrameworkError, PluginError
from framework.plugins.agreeing import attributes_of, disagreements
from framework.plugins.discovery import split_value
from framework.plugins.loading import contract_of
from framework.plugins.manifests import locate
from framework.plugins.policy import normalize
from framework.plugins.records import State
from framework.testing.conformance import garbage
from framework.testing.conformance.cases import expect
from framework.testing.conformance.clauses import Layer, clause
from framework.testing.conformance.imported import ImportClauses
from framework.testing.conformance.ordinary import OrdinaryUse
from framework.testing.conformance.outcomes import Unanswered, Violation
from framework.testing.conformance.probe import HEAVY
from framework.testing.conformance.signatures import misfits

if TYPE_CHECKING:
    from framework.testing.conformance.target import Target

NO_CLASS = "the class cannot be loaded, as ALL-020 tells"
NO_INSTANCE = "no instance can be made, as ALL-022 tells"


def _is_there(value: str) -> bool:
    """Whether the package of an entry point has a manifest, whatever that says."""
    split = split_value(value)
    try:
        return split is not None and locate(split[0]) is not None
    except PluginError:  # it cannot be read
        return True


class CommonClauses(OrdinaryUse, ImportClauses):
    """What `Suite` has from the start."""

    target: Target
    construction_budget: ClassVar[float]

    def new(self) -> Any:
        """See `Suite.new`."""
        raise NotImplementedError

    def close(self, plugin: Contract) -> None:
        """See `Suite.close`."""
        raise NotImplementedError

    def _loaded(self) -> type[Contract]:
        """The class; Unanswered where it cannot be loaded."""
        try:
            return self.target.load()
        except PluginError as error:
            raise Unanswered(NO_CLASS) from error

    def _made(self, make: Callable[[], Contract]) -> Contract:
        """What `make` makes; Unanswered where it cannot be made."""
        self._loaded()
        try:
            return make()
        except FrameworkError as error:
            raise Unanswered(NO_INSTANCE) from error

    @clause("ALL-001", "the entry point reads module:attribute", layer=Layer.STATIC)
    def entry_point_can_be_read(self) -> None:
        record = self.target.record
        expect(
            split_value(record.value) is not None or not self.target.importable,
            record.reason,
            expected="module:attribute",
            found=record.value,
        )

    @clause("ALL-002", "one distribution only claims the name", layer=Layer.STATIC)
    def name_is_claimed_once(self) -> None:
        owners = [record.owner for record in self.target.same_name]
        expect(
            len(owners) == 1,
            "the name has several claims",
            expected="one distribution",
            found=", ".join(owners),
        )

    @clause("ALL-003", "a manifest says its facts", layer=Layer.STATIC, must=False)
    def manifest_is_there(self) -> None:
        record = self.target.record
        expect(
            # Of one that is there and says something wrong ALL-004 tells what.
            record.facts is not None or not self.target.installed or _is_there(record.value),
            "facts unknown",
            expected="framework-plugin.toml beside the top-level __init__, with its [[plugin]]",
            found="no such file; is it in [tool.setuptools.package-data]?",
        )

    @clause(
        "ALL-004",
        "the manifest can be read and its range holds this core's contract",
        layer=Layer.STATIC,
    )
    def contract_range_fits(self) -> None:
        record = self.target.record
        wrong = record.state in (State.FAILED, State.INCOMPATIBLE)
        expect(not wrong or split_value(record.value) is None, record.reason)

    @clause(
        "ALL-005",
        "the distribution requires the core, a third party's without an upper end",
        layer=Layer.STATIC,
        must=False,
    )
    def core_is_required(self) -> None:
        record = self.target.record
        if not self.target.installed or record.owner == "framework":
            return
        found = self._core_requirement()
        if found is None:
            raise Violation(
                "the distribution does not require the core\n"
                '  expected: dependencies = ["framework>=0.1"]'
            )
        if record.first_party:  # released together with the core
            return
        ends = [str(end) for end in found.specifier if end.operator in ("<", "<=", "==", "~=")]
        expect(
            not ends,
            "the requirement has an upper end; the contract range of the manifest decides",
            expected="framework>=0.N",
            found=f"framework{','.join(ends)}",
        )

    def _core_requirement(self) -> Requirement | None:
        for text in importlib_metadata.requires(self.target.record.owner) or ():
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if normalize(requirement.name) == "framework":
                return requirement
        return None

    @clause(
        "ALL-020", "the class derives from the contract and lacks no method", layer=Layer.CONSTRUCT
    )
    def class_fulfils_the_contract(self) -> None:
        try:
            self.target.load()
        except PluginError as error:
            expect(False, str(error))

    @clause(
        "ALL-021", "its methods can be called as the contract calls them", layer=Layer.CONSTRUCT
    )
    def signatures_fit(self) -> None:
        wrong = misfits(self._loaded(), contract_of(self.target.kind))
        expect(not wrong, "methods do not fit the contract", found="; ".join(wrong))

    @clause("ALL-022", "it can be made and closed, again and again", layer=Layer.CONSTRUCT)
    def construction_works(self) -> None:
        self._loaded()
        for _ in range(3):
            try:
                self.new()
            except FrameworkError as error:
                expect(False, str(error), expected="an instance")

    @clause("ALL-023", "the constructor is cheap: quick, and no thread", layer=Layer.CONSTRUCT)
    def construction_is_cheap(self) -> None:
        self._loaded()
        threads = set(threading.enumerate())
        heavy = set(sys.modules)

        def measure() -> float:
            started = self.now()
            self._made(self.new)
            return self.now() - started

        seconds = self.quickest(measure, self.construction_budget)
        self.expect_quick(seconds, self.construction_budget, "the constructor is slow")
        begun = [thread.name for thread in threading.enumerate() if thread not in threads]
        expect(not begun, "the constructor starts threads", found=", ".join(begun))
        loaded = [name for name in HEAVY if name in sys.modules and name not in heavy]
        expect(not loaded, "the constructor loads heavy libraries", found=", ".join(loaded))
        while self.made:
            with suppress(Exception):  # as ALL-022 tells
                self.close(self.made.pop())

    @clause("ALL-024", "an instance that nobody holds goes without an error", layer=Layer.CONSTRUCT)
    def instances_go_quietly(self) -> None:
        problems: list[str] = []
        before = sys.unraisablehook
        sys.unraisablehook = lambda found: problems.append(
            f"{type(found.exc_value).__name__}: {found.exc_value}"
        )
        try:
            # What others left behind is no fault of this plugin.
            with garbage.of_its_own():
                made: Contract | None = self._made(self.target.make)
                del made
                gc.collect()
        finally:
            sys.unraisablehook = before
        expect(not problems, "the end of an instance raises", found="; ".join(problems))

    @clause(
        "ALL-025",
        "it can be made without options, or the suite says which",
        layer=Layer.CONSTRUCT,
    )
    def options_suffice(self) -> None:
        model = self._loaded().Options
        if model is None:
            return
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        missing = [name for name in needed if name not in self.target.options]
        expect(
            not missing,
            "options without a default: the plugin cannot be made without them",
            expected="a default, or a value in the suite's `options`",
            found=", ".join(missing),
        )

    @clause("ALL-027", "each option has a description", layer=Layer.CONSTRUCT, must=False)
    def options_are_described(self) -> None:
        model = self._loaded().Options
        fields = model.model_fields if model is not None else {}
        missing = [name for name, field in fields.items() if not field.description]
        expect(
            not missing,
            "options without a description",
            expected="Field(description=...)",
            found=", ".join(missing),
        )

    @clause("ALL-026", "the class has a docstring of its own", layer=Layer.CONSTRUCT, must=False)
    def class_is_described(self) -> None:
        text = inspect.cleandoc(self._loaded().__doc__ or "")
        expect(text, "the class has no docstring", expected="one sentence on what it does")

    @clause(
        "ALL-028",
        "the class has the facts that its manifest tells of it",
        layer=Layer.CONSTRUCT,
    )
    def class_is_what_the_manifest_says(self) -> None:
        record = self.target.record
        wrong = [
            f"{key} = {said!r} in the manifest, {found!r} in the class"
            for key, said, found in disagreements(record, attributes_of(self._loaded()))
        ]
        expect(
            not wrong,
            "manifest and class disagree",
            expected=f"the same in framework-plugin.toml and in {record.value}",
            found="; ".join(wrong),
        )
