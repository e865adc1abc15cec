"""Options of plugins: a pydantic model per plugin, validated when an instance is made."""

from __future__ import annotations

import itertools
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError, PluginError
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from framework.contracts.base import Contract
    from framework.plugins.records import Record

Options = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{kind: {name: {key: value}}}"""


def parse_option(text: str) -> tuple[str, str, str, str]:
    """Read `kind.name.key=value` into its four parts; values are converted by the model."""
    path, equals, value = text.partition("=")
    parts = [part.strip() for part in path.split(".", 2)]
    if not equals or len(parts) != 3 or not all(parts):
        # What is right of the sign may be a secret.
        raise ConfigError(
            f"plugin option {path!r} is not understood",
            expected="kind.name.key=value",
            found=f"{path}=..." if equals else "no =",
        )
    return parts[0], parts[1], parts[2], value


def validate(
    record: Record, cls: type[Contract], given: Mapping[str, Any] | None
) -> BaseModel | None:
    """The options object of a plugin; None when it takes none.

    Raises PluginError that names plugin, key, what was expected, and near matches.
    """
    model = cls.Options
    if model is None:
        if given:
            raise PluginError(
                f"plugin {record.key} takes no options",
                plugin=record.key,
                distribution=record.distribution,
                expected="no options",
                found=", ".join(map(str, given)),
            )
        return None
    known = _keys(model)
    values = dict(given or {})
    if model.model_config.get("extra") != "allow":
        for key in values:
            if key not in known:
                raise PluginError(
                    f"plugin {record.key} has no option {key!r}{did_you_mean(str(key), known)}",
                    plugin=record.key,
                    distribution=record.distribution,
                    expected=f"one of {', '.join(sorted(known))}" if known else "no options",
                    found=key,
                )
    return _build(record, model, values)


def _build(record: Record, model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    from pydantic import ValidationError

    try:
        return _made(model, values)
    except ValidationError as error:
        # The values themselves stay out of the message: one may be a secret, which a validator
        # of the plugin's own may quote.
        hidden = secrets_in(model, values)
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'options'}: {without(fault['msg'], hidden)}"
            for fault in error.errors(include_input=False, include_url=False)
        ]
    except ConfigError as error:  # a text that spells no list or mapping
        faults = [error.message]
    raise PluginError(
        f"options of plugin {record.key} are invalid: {'; '.join(faults)}",
        plugin=record.key,
        distribution=record.distribution,
        mend=f"set --plugin-option {record.kind}.{record.name}.KEY=VALUE",
    )


def _made(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """The options; a text that a field does not take is read as the list or mapping that it
    spells, as a flag or the environment have no other way to give one."""
    from pydantic import ValidationError

    try:
        return model(**values)
    except ValidationError as error:
        for fault in error.errors(include_input=False, include_url=False):
            key = fault["loc"][0] if fault["loc"] else None
            text = values.get(str(key))
            if isinstance(text, str) and text.lstrip()[:1] in ("[", "{"):
                values[str(key)] = _read(str(key), text)
    return model(**values)


def _read(key: str, text: str) -> object:
    from framework.config.strict_yaml import read_yaml

    return read_yaml(text, key)


def secrets_in(model: type[BaseModel] | None, values: Mapping[str, Any] | None) -> list[str]:
    """The single values that no message may show."""
    if model is None:
        return []
    given = (values or {}).items()
    return [text for key, value in given if is_secret(model, key) for text in _texts(value)]


def _texts(value: Any) -> Iterator[str]:
    """The single values in a value, as a message might show them."""
    reveal = getattr(value, "get_secret_value", None)
    match reveal() if reveal is not None else value:
        case Mapping() as mapping:
            yield from itertools.chain.from_iterable(map(_texts, mapping.values()))
        case list() | tuple() | set() | frozenset() as several:
            yield from itertools.chain.from_iterable(map(_texts, several))
        case single:
            yield str(single)


def without(message: str, hidden: Iterable[str]) -> str:
    """The message with each of the texts masked."""
    for text in sorted(filter(None, hidden), key=len, reverse=True):
        message = message.replace(text, "**********")
    return message


def is_secret(model: type[BaseModel], key: str) -> bool:
    """Whether the value of an option must not be shown: a secret, or one that holds some, or one
    that the model does not know."""
    for name, field in model.model_fields.items():
        if key == name or key in _aliases(field):
            return not field.repr or _holds_secret(field.annotation)
    return True


def _holds_secret(annotation: Any) -> bool:
    from pydantic import BaseModel, SecretBytes, SecretStr

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_holds_secret(f.annotation) for f in annotation.model_fields.values())
    return annotation in (SecretStr, SecretBytes) or any(
        map(_holds_secret, typing.get_args(annotation))
    )


def _aliases(field: FieldInfo) -> list[str]:
    alias = field.validation_alias or field.alias
    choices = getattr(alias, "choices", [alias])  # pydantic.AliasChoices
    return [choice for choice in choices if isinstance(choice, str)]


def _keys(model: type[BaseModel]) -> set[str]:
    """What pydantic takes; what it does not it would pass over in silence."""
    config = model.model_config
    by_name = config.get("populate_by_name") or config.get("validate_by_name")
    by_alias = config.get("validate_by_alias") is not False
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        if by_alias:
            keys.update(_aliases(field))
        if by_name or (field.validation_alias or field.alias) is None:
            keys.add(name)
    return keys
