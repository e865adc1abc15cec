"""The plain face of the kit: one call, one report."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import framework
from framework.contracts.base import Contract
from framework.errors import ConfigError
from framework.plugins.near import did_you_mean
from framework.testing.conformance.bounds import bounded, unending
from framework.testing.conformance.catalogue import suite_of
from framework.testing.conformance.clauses import Layer
from framework.testing.conformance.outcomes import Outcome, Status
from framework.testing.conformance.report import Report
from framework.testing.conformance.run import CLAUSE_BUDGET, Run, Watch
from framework.testing.conformance.suite import Suite
from framework.testing.conformance.target import target_of


def check(
    plugin: str | type[Contract] | None = None,
    *,
    suite: type[Suite] | None = None,
    options: Mapping[str, Any] | None = None,
    ad_hoc: Mapping[str, str] | None = None,
    seed: int | None = None,
    only: Collection[str] = (),
    only_case: int | None = None,
    layers: Collection[Layer] = tuple(Layer),
    budget: float = CLAUSE_BUDGET,
    slowness: float | None = None,
) -> Report:
    """Run a suite on a plugin, in this process.

    plugin: "kind:name", "kind:name@distribution" or a class; None takes the suite's own.
    suite: by default that of the kind.  only: clause ids; of the others the report has then those
    that kept one of these from being run, which makes the plugin not conformant.
    ad_hoc: {"kind:name": "module:attr"}.
    budget: seconds that a clause may take.
    slowness: in place of the suite's; it multiplies `budget` and all budgets of the suite.

    Raises PluginError for an unknown plugin and ConfigError for an unknown clause.
    """
    run = prepare(
        plugin,
        suite=suite,
        options=options,
        ad_hoc=ad_hoc,
        seed=seed,
        only=only,
        only_case=only_case,
        layers=layers,
        budget=budget,
        slowness=slowness,
    )
    return complete(run, only)


def prepare(
    plugin: str | type[Contract] | None,
    *,
    suite: type[Suite] | None,
    options: Mapping[str, Any] | None,
    ad_hoc: Mapping[str, str] | None,
    only: Collection[str],
    watch: Watch = lambda clause, outcome: None,
    **more: Any,
) -> Run:
    """What `check` and its arguments mean, with nothing run yet.  Raises as `check` does."""
    wanted = plugin if plugin is not None else suite.plugin if suite else None
    if wanted is None:
        raise ConfigError("no plugin to check", expected="plugin=..., or a suite with one")
    given = options if options is not None else suite.options if suite else {}
    target = target_of(wanted, kind=suite.kind if suite else None, options=given, ad_hoc=ad_hoc)
    chosen = suite or suite_of(target.kind.name)
    if chosen.kind not in (None, target.kind.name):
        raise ConfigError(
            f"{chosen.__name__} is for plugins of kind {chosen.kind}",
            expected=chosen.kind,
            found=target.key,
        )
    run = Run(chosen, target, watch=watch, **more)
    known = [clause.id for clause in run.clauses]
    for name in only:
        if name not in known:
            raise ConfigError(
                f"{chosen.__name__} has no clause {name!r}{did_you_mean(name, known)}",
                expected=f"one of {', '.join(known)}",
                found=name,
            )
    return run


def complete(run: Run, only: Collection[str] = ()) -> Report:
    """Run what is not settled yet, and report."""
    outcomes = [run.outcome(name) for name in only or [clause.id for clause in run.clauses]]
    problems = tuple(
        f"{o.clause.id} was asked for and is not run: {o.message}"
        for o in outcomes
        if only and o.status is Status.NOT_RUN and o.clause.layer in run.layers
    )
    if problems:
        outcomes += [o for o in run.broken() if o not in outcomes]
    outcomes.sort(key=lambda o: (o.clause.layer, o.clause.id))
    declared, unproven = _claims(run, outcomes)
    return report_of(run, outcomes, capabilities=declared, unproven=unproven, problems=problems)


def report_of(
    run: Run,
    outcomes: Collection[Outcome],
    *,
    capabilities: tuple[str, ...] = (),
    unproven: tuple[str, ...] = (),
    problems: tuple[str, ...] = (),
) -> Report:
    """A report of these outcomes."""
    unknown = [f"expected_failures has unknown clause {name}" for name in run.unknown]
    target = run.target
    return Report(
        plugin=target.key,
        version=target.record.version,
        contract=f"{target.kind.name} {target.kind.version}",
        stability=target.kind.stability.value,
        suite=f"{run.suite.__module__}:{run.suite.__qualname__}",
        seed=run.seed,
        slowness=run.slowness,
        capabilities=capabilities,
        unproven=unproven,
        outcomes=list(outcomes),
        problems=(*unknown, *problems),
    )


def _claims(run: Run, outcomes: Collection[Outcome]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is declared, and what is claimed beyond all clauses; nothing where the plugin is too
    broken to be asked."""
    early = (Layer.STATIC, Layer.IMPORT, Layer.CONSTRUCT)
    broken = [o for o in outcomes if o.status is Status.FAILED and o.clause.layer in early]
    if any(outcome.clause.required(framework.__version__) for outcome in broken):
        return (), ()
    return _asked(run, run.declared), _asked(run, run.unproven)


def _asked(run: Run, question: Callable[[], Collection[str]]) -> tuple[str, ...]:
    try:
        with bounded(run.limit), unending():
            return tuple(sorted(question()))
    except KeyboardInterrupt:
        raise
    except BaseException:  # a clause that rests on it has failed with this error
        return ()
