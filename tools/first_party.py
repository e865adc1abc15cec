"""What the first-party plugins of a kind are and take."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from framework.plugins.kinds import Kind
from framework.plugins.policy import Policy
from framework.plugins.registry import PluginRegistry
from tools import markdown as md
from tools.surface import shown

_LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstParty:
    """summary: the first sentence of its class."""

    name: str
    distribution: str
    summary: str
    options: type[BaseModel] | None

    def option_table(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of the table of its options."""
        assert self.options is not None
        rows = [
            [
                md.code(name),
                md.code(_type(field)),
                "required" if field.is_required() else md.code(_default(field)),
                md.cell(field.description or ""),
            ]
            for name, field in self.options.model_fields.items()
        ]
        return ["option", "type", "default", "meaning"], rows


def plugins_of(kind: Kind) -> list[FirstParty]:
    """By rank, then by name.  Imports the classes, which imports nothing heavy."""
    registry = _registry()
    records = [record for record in registry.records(kind.name) if record.first_party]
    found = []
    for record in sorted(records, key=lambda record: (-record.rank, record.name)):
        cls = registry.load_record(record)
        found.append(
            FirstParty(
                name=record.name,
                distribution=record.owner,
                summary=_first_sentence(cls),
                options=cls.Options,
            )
        )
    return found


@functools.cache
def _registry() -> PluginRegistry:
    return PluginRegistry(policy=Policy(no_plugins=True))


def _first_sentence(cls: type) -> str:
    text = " ".join(inspect.cleandoc(cls.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", text)[0]


def _type(field: FieldInfo) -> str:
    text = re.sub(r"\b(typing|pathlib)\.", "", inspect.formatannotation(_plain(field.annotation)))
    limits = [
        f"{sign} {getattr(item, key)}"
        for item in field.metadata
        for key, sign in _LIMITS.items()
        if getattr(item, key, None) is not None
    ]
    return ", ".join([text, *limits])


def _plain(annotation: Any) -> Any:
    """A type without what pydantic hangs on it."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    parts = tuple(map(_plain, get_args(annotation)))
    if not parts or get_origin(annotation) is Literal:
        return annotation
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return functools.reduce(operator.or_, parts)
    return get_origin(annotation)[parts]


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None:
        return shown(_made(field.default_factory))
    return shown(field.default)


def _made(factory: Any) -> object:
    return factory()
