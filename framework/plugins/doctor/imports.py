"""What an import tells: it fails, hangs, ends the process, is slow or heavy, or the class is
not what the manifest says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from framework.plugins.agreeing import disagreements
from framework.plugins.doctor.findings import Finding, about
from framework.plugins.kinds import Kind
from framework.plugins.loading import how_to_mend
from framework.plugins.records import Record
from framework.plugins.trial import Trial, try_imports

MOST_NAMES = 5


def imports(
    records: Sequence[Record], kinds: Sequence[Kind], *, slow: float, budget: float
) -> Iterator[Finding]:
    """Import each in another process.  slow: seconds from which on an import is too slow.
    budget: seconds after which it counts as hung."""
    for record, trial in zip(records, try_imports(records, kinds, budget=budget), strict=True):
        yield from _findings(record, trial, slow)
        if trial.spoiled is not None:
            yield _spoiled(record, trial, [r for r in records if r.key in trial.behind])


def _findings(record: Record, trial: Trial, slow: float) -> Iterator[Finding]:
    mend = how_to_mend(record)
    later = f"{record.owner} should import and compute in its methods; {mend}"
    if trial.hung:
        text = f"{record.key} did not return from its import within {trial.seconds:g} s"
        yield about(record, "hang", text, mend)
    elif trial.ended is not None:
        text = f"{record.key} ends the process when it is imported: {trial.ended}"
        yield about(record, "exit", text, mend)
    elif trial.error is not None:
        yield about(record, "import", trial.error, trial.mend or mend)
    elif trial.seconds > slow:
        because = f" (it imports {trial.heavy})" if trial.heavy else ""
        text = f"{record.key} takes {trial.seconds:.2f} s to import{because}"
        yield about(record, "slow", text, later, warning=True)
    if trial.heavy:
        text = f"{record.key} imports {trial.heavy} when it is imported"
        yield about(record, "heavy", text, later, warning=True)
    for uncaught in trial.uncaught:
        text = f"{record.key}: {uncaught}, where nobody can catch it"
        yield about(record, "uncaught", text, mend, warning=True)
    for key, said, found in disagreements(record, trial.attributes or {}):
        text = f"{record.key}: its manifest says {key} = {said!r}, its class {found!r}"
        fix = f"make framework-plugin.toml and {record.value} of {record.owner} agree"
        yield about(record, "manifest", text, fix)


def _spoiled(record: Record, trial: Trial, behind: Sequence[Record]) -> Finding:
    """About the one that changes the process, where that is known."""
    if len(behind) == 1:
        (other,) = behind
        text = f"{other.key} changes the process: {record.key} cannot be imported behind it"
        fix = f"`framework plugins conform {other.key}` may say what it changes; "
        mend = fix + how_to_mend(other)
        return about(other, "spoiled", f"{text}: {trial.spoiled}", mend, warning=True)
    others = ", ".join(other.key for other in behind[-MOST_NAMES:])
    more = len(behind) - MOST_NAMES
    others = f"{others} and {more} more" if more > 0 else others
    text = f"{record.key} can be imported, but not behind {others}: {trial.spoiled}"
    fix = "some of those change the process: find them with `framework plugins conform`"
    return about(record, "spoiled", text, fix, warning=True)
