"""What is wrong before anything is loaded: lists and options that name nothing."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from framework.errors import PluginError
from framework.plugins.kinds import Kind
from framework.plugins.lookup import unknown
from framework.plugins.near import did_you_mean
from framework.plugins.options import Options
from framework.plugins.policy import DENY_VARIABLE, Pattern, Policy, unmatched
from framework.plugins.records import Problem, Record


def policy_problems(
    policy: Policy, records: Sequence[Record], first_party: frozenset[str]
) -> list[Problem]:
    """Entries that cover nothing: fatal for an exact name that was allowed, else a warning."""
    plugins = [(r.kind, r.name, r.distribution) for r in records]
    problems = []
    for pattern in unmatched(policy.allow or (), plugins):
        if pattern.exact:
            problems.append(_unknown(pattern, records, first_party))
        else:
            problems.append(_nothing("FRAMEWORK_PLUGINS", pattern, policy))
    problems += [
        _nothing(DENY_VARIABLE, pattern, policy) for pattern in unmatched(policy.deny, plugins)
    ]
    return problems


def _unknown(pattern: Pattern, records: Sequence[Record], first_party: frozenset[str]) -> Problem:
    name = pattern.name + (f"@{pattern.distribution}" if pattern.distribution else "")
    of_kind = [r for r in records if pattern.kind is None or fnmatchcase(r.kind, pattern.kind)]
    error = unknown(name, None, of_kind, first_party)
    return Problem(
        message=f"FRAMEWORK_PLUGINS names {pattern.text!r}: {error.message}; {error.found}",
        fatal=True,
        plugin=pattern.text,
        distribution=pattern.distribution,
        mend=error.mend,
    )


def _nothing(variable: str, pattern: Pattern, policy: Policy) -> Problem:
    return Problem(
        message=f"{variable} has {pattern.text!r}, which no installed plugin matches",
        fatal=policy.strict,
        plugin=pattern.text,
        mend="see `framework plugins list` for what is installed",
    )


def option_problems(
    options: Options, records: Sequence[Record], kinds: Sequence[Kind]
) -> list[Problem]:
    """Options of plugins that do not exist."""
    problems = []
    kind_names = [kind.name for kind in kinds]
    for kind, plugins in options.items():
        known = {r.name for r in records if r.kind == kind}
        for name in plugins:
            if kind not in kind_names:
                hint = did_you_mean(kind, kind_names)
                message = f"option of unknown kind {kind!r}{hint}"
            elif name not in known:
                message = f"option of unknown plugin {kind}:{name}{did_you_mean(name, known)}"
            else:
                continue
            problems.append(Problem(message=message, fatal=True, plugin=f"{kind}:{name}"))
    return problems


def raise_fatal(problems: Sequence[Problem]) -> None:
    """Raises one PluginError for all problems that are fatal, if there are any."""
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        raise PluginError(
            "; ".join(problem.message for problem in fatal),
            plugin=fatal[0].plugin,
            distribution=fatal[0].distribution,
            mend="; ".join(problem.mend for problem in fatal if problem.mend) or None,
        )
