"""`speculative_config`, one mapping in the place of several fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from framework.config.layers import OPTIONS, Setting
from framework.errors import ConfigError

FIELD = "speculative_config"
KIND = "speculative_proposer"
_FIELDS = {"method": KIND, "model": "speculative_model"} | {
    name: name for name in ("num_speculative_tokens",)
}


def expanded(item: Setting) -> Iterator[Setting]:
    """The settings that one of `speculative_config` stands for; any other as it is.

    {"method": NAME, "model": M, "num_speculative_tokens": N, KEY: VALUE} says the fields, and for
    each further key the option KEY of the proposer NAME.  Raises ConfigError for such a key
    without a method, since nobody knows whose it is.
    """
    if item.field != FIELD or not isinstance(item.value, Mapping):
        yield item
        return
    options = {}
    for key, value in item.value.items():
        if key in _FIELDS:
            yield Setting(item.section, _FIELDS[key], value, item.source)
        else:
            options[f"{KIND}.{item.value.get('method')}.{key}"] = value
    if options and not isinstance(item.value.get("method"), str):
        raise ConfigError(
            f"{FIELD} has options and does not say of which proposer",
            expected='{"method": NAME, ...}, as in {"method": "ngram", "prompt_lookup_max": 4}',
            found=f"{', '.join(map(str, item.value))} ({item.source})",
        )
    if options:
        yield Setting("plugin", OPTIONS, options, item.source)
