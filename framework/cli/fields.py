"""Every field of the configuration as a flag: --max-num-seqs 8 is max_num_seqs in a file."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Sequence

from framework.cli.misplaced import place_of
from framework.errors import ConfigError
from framework.plugins.near import did_you_mean

ANY_FLAG = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Settings of a command whose further words `parse_fields` reads."""
_TRUTHS = ("true", "false")


def parse_fields(
    words: Sequence[str], own: Collection[str], options: Callable[[], Collection[str]]
) -> tuple[dict[str, object], dict[str, object]]:
    """(fields of the configuration, options of the front end) that further flags say.

    `--some-field VALUE`, `--some-field=VALUE`; of one that is true or false `--some-field` and
    `--no-some-field`, too.  own: flags that the command has itself, for near matches.  options:
    names of the front end's options, asked for only if a flag is no field.  Raises ConfigError.
    """
    from framework.cli.context import parse_settings
    from framework.config.layers import OWNER

    fields: dict[str, object] = {}
    others: dict[str, object] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        early = place_of(word, "serve")
        if not flag.startswith("--") or not name or early:
            raise ConfigError(
                "an argument belongs to no flag",
                expected="--FLAG VALUE, or a flag that needs no value",
                found=word,
                mend=early,
            )
        switched = _switch(name, OWNER)
        if not equals and switched is not None:
            name, value = switched
            if waiting and waiting[0].lower() in _TRUTHS and not flag.startswith("--no-"):
                value = waiting.pop(0)
        elif name not in OWNER and name not in options():
            known = [*own, *("--" + each.replace("_", "-") for each in (*OWNER, *options()))]
            raise ConfigError(
                f"there is no flag {flag}{did_you_mean(flag, known)}",
                expected="one of --help, or a field that `framework config` lists",
                found=word,
            )
        elif not equals:
            if not waiting:
                raise ConfigError(f"{flag} needs a value", expected=f"{flag} VALUE", found=flag)
            value = waiting.pop(0)
        if name in OWNER:
            fields |= parse_settings([f"{name}={value}"])
        else:
            others[name] = value
    return fields, others


def _switch(name: str, owner: typing.Mapping[str, str]) -> tuple[str, str] | None:
    """(field, "true" or "false") of a flag that needs no value."""
    other = name.removeprefix("no_")
    if name in owner:
        return (name, "true") if _is_bool(owner[name], name) else None
    if other in owner and _is_bool(owner[other], other):
        return other, "false"
    return None


def _is_bool(section: str, field: str) -> bool:
    from framework.config.layers import SECTIONS

    annotation = SECTIONS[section].model_fields[field].annotation
    return bool in (annotation, *typing.get_args(annotation))
