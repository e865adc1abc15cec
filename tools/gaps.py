"""What a stable contract owes to who writes plugins: docstrings, clauses and a page."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from framework.testing.conformance import Suite, clauses_of
from tools.surface import doc_of, methods_of, own_classes


def gaps(contract: type, module: ModuleType, suite: type[Suite], page: str) -> Iterator[str]:
    """One sentence for each thing that is missing.

    module: where the contract is written, with its queries, answers and protocols.  page: the
    text of its page in docs/kinds.
    """
    yield from _undocumented(module)
    methods = {method.name for method in methods_of(contract, inherited=True)}
    own = [clause for clause in clauses_of(suite) if clause not in clauses_of(Suite)]
    named = {name for clause in own for name in clause.of}
    for name in sorted(methods - named):
        yield f"{contract.__name__}.{name} has no clause: name it in `of=` of one"
    for clause in own:
        for name in sorted(set(clause.of) - methods):
            yield f"clause {clause.id} is of {name}, which {contract.__name__} does not have"
    for name in sorted(methods):
        if f"def {name}(" not in page:
            yield f"{contract.__name__}.{name} has no place in the page: run `make docs`"


def _undocumented(module: ModuleType) -> Iterator[str]:
    """Classes of the module and their methods; a method that overrides one may keep its words."""
    for name, cls in own_classes(module):
        if not doc_of(cls):
            yield f"{name} has no docstring"
        for method in methods_of(cls):
            if not method.doc:
                yield f"{name}.{method.name} has no docstring"
