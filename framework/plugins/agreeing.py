"""Whether a class is what its manifest says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from framework.contracts.base import Contract
from framework.plugins.records import Record

_MANIFEST_ONLY = ("kind", "name", "contract", "knows", "scopes", "config", "facts")
_PLAIN = (str, int, float, bool, tuple, list, frozenset, set, dict)


def attributes_of(cls: type[Contract]) -> dict[str, object]:
    """Public values of a class that a manifest could hold."""
    return {
        name: value
        for name in dir(cls)
        if not name.startswith("_") and isinstance(value := getattr(cls, name, None), _PLAIN)
    }


def disagreements(
    record: Record, attributes: Mapping[str, object]
) -> Iterator[tuple[str, object, object]]:
    """Facts of the manifest that the class has as well, with another value: (key, manifest's,
    class's)."""
    if record.facts is None:
        return
    facts = record.facts.as_dict()
    said = {key: value for key, value in facts.items() if key not in _MANIFEST_ONLY}
    for key, value in {**said, **facts["facts"]}.items():
        if key in attributes and _plain(value) != _plain(attributes[key]):
            yield key, value, attributes[key]


def _plain(value: object) -> object:
    if isinstance(value, Collection) and not isinstance(value, str | dict):
        return sorted(map(repr, value))
    return value
