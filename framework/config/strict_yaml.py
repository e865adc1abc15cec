"""YAML in which nothing is lost in silence, and which is no larger than it looks."""

from __future__ import annotations

import re
from typing import Any

import yaml

from framework.errors import ConfigError

MOST = 1 << 20
"""Values in a text with what its aliases stand for; a few lines can stand for any number."""
# Beside its own errors yaml lets through those of the constructors of dates and numbers, and
# of nesting that is too deep.
_YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError)
_QUOTED = re.compile(r"(?s)'(?:<[a-z ]+>|[^\w\s])'|(['\"]).*\1")
"""What an error of the parser quotes: its own words, such as ',' and '<scalar>', or (a group) the
text."""


class StrictLoader(yaml.SafeLoader):
    """As the safe one, but for a mapping that has one key twice, of which the last would win, and
    for aliases that stand for more than MOST values, or for what they are part of."""

    def construct_document(self, node: yaml.Node) -> Any:
        """Raises ConstructorError for such aliases."""
        _size(node, {})
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Raises ConstructorError for such a mapping; what `<<` brings is no key of its own."""
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem="this key stands in the mapping already; leave one of them out",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _size(node: yaml.Node, known: dict[int, int | None]) -> int:
    """How many values a node stands for.  known: the sizes of nodes, None while one is counted."""
    if id(node) not in known:
        known[id(node)] = None
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        nodes = (part for each in parts for part in (each if isinstance(each, tuple) else (each,)))
        known[id(node)] = 1 + sum(_size(part, known) for part in nodes)
    size = known[id(node)]
    if size is None or size > MOST:
        what = "is part of itself" if size is None else f"stands for more than {MOST} values"
        raise yaml.constructor.ConstructorError(
            problem=f"this {what}", problem_mark=node.start_mark
        )
    return size


def read_yaml(text: str, source: str) -> Any:
    """The value that a text from `source` holds.  Raises ConfigError."""
    try:
        return yaml.load(text, StrictLoader)  # a safe one
    except _YAML_ERRORS as error:
        fault = _fault(error)
    # Without the cause, which quotes the text: a secret may stand in it.
    raise ConfigError(f"{source} is not JSON or YAML: {fault}")


def _fault(error: Exception) -> str:
    """What is wrong and where, without anything of the text itself."""
    said = getattr(error, "problem", None) or str(error) or type(error).__name__
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return place + _QUOTED.sub(lambda found: "..." if found[1] else found[0], said)
