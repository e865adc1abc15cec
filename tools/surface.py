"""What a contract consists of, read from its classes: names, methods, fields.

The surface of a contract is what its module defines, and all types of `framework.contracts`
that a plugin of the kind can be handed or must give back.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from framework.plugins.kinds import Kind
from framework.plugins.loading import contract_of

PACKAGE = "framework.contracts"
_METHODS = (FunctionType, property, staticmethod, classmethod)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A field of a dataclass, a struct or a protocol.

    default: as written in an error message, None where the field is required.  since: None but
    for versioned fields.  neutral: None where a versioned field has no neutral value.  hint: of a
    query, see `versioned`.
    """

    name: str
    type: str
    default: str | None = None
    since: str | None = None
    neutral: str | None = None
    hint: bool = False

    @property
    def required(self) -> bool:
        """Who makes the value must give it; of a query, an old plugin must understand it."""
        return self.default is None or (self.since is not None and self.neutral is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """arguments: as written, self among them.  result: "" where it is not annotated.
    doc: "" where there is none.  required: a plugin must write it.  decorator: "property",
    "staticmethod", "classmethod" or "".  asynchronous: it is awaited."""

    name: str
    arguments: tuple[str, ...]
    result: str
    doc: str
    required: bool
    decorator: str = ""
    asynchronous: bool = False

    @property
    def signature(self) -> str:
        """On one line."""
        return _line(self.arguments, self.result)


def module_of(kind: Kind) -> ModuleType:
    """The module that `kind.contract` names."""
    return sys.modules[contract_of(kind).__module__]


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Name and value of what a module defines itself, in its order."""
    tree = ast.parse(inspect.getsource(module))
    for node in tree.body:
        for name in _defined(node):
            if not name.startswith("_") and name in vars(module):
                yield name, vars(module)[name]


def own_classes(module: ModuleType) -> Iterator[tuple[str, type]]:
    """The public classes that a module defines, in its order."""
    for name, value in public_names(module):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield name, value


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


def types_of(kind: Kind) -> list[type]:
    """Classes of other files that the contract mentions, and those that these mention."""
    own = module_of(kind).__name__
    waiting = [cls for _, cls in own_classes(module_of(kind))]
    found: dict[type, None] = dict.fromkeys(waiting)
    waiting.append(contract_of(kind))
    while waiting:
        for other in _mentioned(waiting.pop(0)):
            if other not in found:
                found[other] = None
                waiting.append(other)
    others = [cls for cls in found if cls.__module__ != own]
    return sorted(others, key=lambda cls: (cls.__module__, cls.__name__))


def _mentioned(cls: type) -> Iterator[type]:
    """Public classes of the contracts that bases, fields and signatures of `cls` name."""
    yield from (base for base in cls.__mro__[1:] if _is_contract_type(base))
    texts = [field.type for field in fields_of(cls)]
    texts += [f"def f{method.signature}: ..." for method in methods_of(cls)]
    known = _names_in(sys.modules[cls.__module__])
    for text in texts:
        for node in ast.walk(ast.parse(text)):
            name = str(getattr(node, "id", getattr(node, "attr", "")))
            yield from (value for value in known.get(name, ()) if _is_contract_type(value))


@functools.cache
def _names_in(module: ModuleType) -> Mapping[str, list[type]]:
    """What names mean in a module, those for type checkers among them; an alias its parts."""
    found: dict[str, list[type]] = {}
    for name, value in vars(module).items():
        found[name] = _parts(value)
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            __import__(str(node.module))
            there = sys.modules[str(node.module)]
            for alias in node.names:
                found[alias.asname or alias.name] = _parts(getattr(there, alias.name))
    return found


def _parts(value: object) -> list[type]:
    if isinstance(value, type):
        return [value]
    return [part for part in getattr(value, "__args__", ()) if isinstance(part, type)]


def _is_contract_type(value: type) -> bool:
    return value.__module__.startswith(PACKAGE) and not value.__name__.startswith("_")


def fields_of(cls: type) -> list[Field]:
    """Fields of a dataclass or a struct, attributes of a protocol or a contract."""
    if dataclasses.is_dataclass(cls):
        return [_of_dataclass(field) for field in dataclasses.fields(cls)]
    if issubclass(cls, msgspec.Struct):
        return [_of_struct(field) for field in msgspec.structs.fields(cls)]
    if issubclass(cls, Enum):
        return [
            Field(name=member.name, type="member", default=repr(member.value)) for member in cls
        ]
    return [
        Field(name=name, type=str(text), default=_own(base, name))
        for base in reversed(cls.__mro__)
        if _is_contract_type(base) and (base is cls or base.__name__ != "Contract")
        for name, text in vars(base).get("__annotations__", {}).items()
        if not name.startswith("_") and name != "kind"
    ]


def _own(cls: type, name: str) -> str | None:
    return shown(vars(cls)[name]) if name in vars(cls) else None


def _of_dataclass(field: dataclasses.Field[Any]) -> Field:
    default = None
    if field.default is not dataclasses.MISSING:
        default = shown(field.default)
    elif field.default_factory is not dataclasses.MISSING:
        default = f"{getattr(field.default_factory, '__name__', 'made')}()"
    neutral = field.metadata.get("neutral", dataclasses.MISSING)
    return Field(
        name=field.name,
        type=str(field.type),
        default=default,
        since=field.metadata.get("since"),
        neutral=None if neutral is dataclasses.MISSING else shown(neutral),
        hint=bool(field.metadata.get("hint")),
    )


def _of_struct(field: msgspec.structs.FieldInfo) -> Field:
    default = None if field.default is msgspec.NODEFAULT else shown(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        default = f"{getattr(field.default_factory, '__name__', 'made')}()"
    return Field(name=field.name, type=inspect.formatannotation(field.type), default=default)


def shown(value: object) -> str:
    """A value as code; sets in order, so that two runs write the same."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset) and value:
        return f"frozenset({{{', '.join(sorted(map(repr, value)))}}})"
    if isinstance(value, type):
        return value.__name__
    return repr(value)


def methods_of(cls: type, *, inherited: bool = False) -> list[Method]:
    """Public methods in the order of the source.  inherited: of its bases in the contracts, too."""
    found: dict[str, Method] = {}
    for base in reversed(cls.__mro__) if inherited else (cls,):
        if not _is_contract_type(base) or base.__name__ == "Contract":
            continue
        for name, value in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(value, _METHODS):
                found[name] = method_of(cls, name)
    return list(found.values())


def method_of(cls: type, name: str) -> Method:
    """A method, class method or property of `cls` by name."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    value = vars(owner)[name]
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    node = _source_of(function)
    # What the core fulfils may grow; the others are for plugins to fulfil.
    protocol = getattr(owner, "_is_protocol", False) and not getattr(owner, "__handed__", False)
    return Method(
        name=name,
        arguments=_arguments(node.args),
        result=_result(node),
        doc=inspect.getdoc(getattr(cls, name)) or "",
        required=protocol or getattr(function, "__isabstractmethod__", False),
        decorator="" if isinstance(value, FunctionType) else type(value).__name__,
        asynchronous=isinstance(node, ast.AsyncFunctionDef),
    )


def signature_of(function: Any) -> str:
    """On one line, as in the source."""
    node = _source_of(function)
    return _line(_arguments(node.args), _result(node))


def _line(arguments: tuple[str, ...], result: str) -> str:
    return f"({', '.join(arguments)}){f' -> {result}' if result else ''}"


def _result(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return ast.unparse(node.returns) if node.returns is not None else ""


def _source_of(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _arguments(given: ast.arguments) -> tuple[str, ...]:
    """As in the source, one by one."""
    ordered = [*given.posonlyargs, *given.args]
    missing = [None] * (len(ordered) - len(given.defaults))
    found = [_argument(a, d) for a, d in zip(ordered, [*missing, *given.defaults], strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if given.vararg is not None:
        found.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        found.append("*")
    found += [_argument(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        found.append("**" + _argument(given.kwarg, None))
    return tuple(found)


def _argument(given: ast.arg, default: ast.expr | None) -> str:
    if given.annotation is None:
        return given.arg if default is None else f"{given.arg}={ast.unparse(default)}"
    value = "" if default is None else f" = {ast.unparse(default)}"
    return f"{given.arg}: {ast.unparse(given.annotation)}{value}"


def doc_of(cls: type) -> str:
    """The docstring that somebody wrote; "" for that of a dataclass without one."""
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)
