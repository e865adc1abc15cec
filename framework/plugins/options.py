"""Options of plugins: a pydantic model per plugin, validated when an instance is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import ConfigError, PluginError
from framework.plugins.near import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

    from framework.contracts.base import Contract
    from framework.plugins.records import Record

Options = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""{kind: {name: {key: value}}}"""


def parse_option(text: str) -> tuple[str, str, str, str]:
    """Read `kind.name.key=value` into its four parts; values are converted by the model."""
    path, equals, value = text.partition("=")
    parts = [part.strip() for part in path.split(".", 2)]
    if not equals or len(parts) != 3 or not all(parts):
        raise ConfigError(
            f"plugin option {text!r} is not understood", expected="kind.name.key=value", found=text
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
        return model(**values)
    except ValidationError as error:
        # The values themselves stay out of the message: one may be a secret.
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'options'}: {fault['msg']}"
            for fault in error.errors(include_input=False, include_url=False)
        ]
    raise PluginError(
        f"options of plugin {record.key} are invalid: {'; '.join(faults)}",
        plugin=record.key,
        distribution=record.distribution,
        mend=f"set --plugin-option {record.kind}.{record.name}.KEY=VALUE",
    )


def _keys(model: type[BaseModel]) -> set[str]:
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        alias = field.validation_alias or field.alias
        choices = getattr(alias, "choices", [alias])  # pydantic.AliasChoices
        keys.update(choice for choice in choices if isinstance(choice, str))
        if alias is None or model.model_config.get("populate_by_name"):
            keys.add(name)
    return keys
