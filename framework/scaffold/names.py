"""The names of a new plugin, of its class, its package and its distribution."""

from __future__ import annotations

import builtins
import importlib.util
import keyword
import re
from dataclasses import dataclass

import importlib_metadata

from framework.errors import ConfigError
from framework.plugins.discovery import core_first_party
from framework.plugins.kinds import Kind

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
_LONGEST = 60
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "none", "auto"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """kind: row of the table.  name: of the plugin.  The others follow from it."""

    kind: Kind
    name: str
    distribution: str
    package: str
    cls: str


def check_names(kind: Kind, name: str, source: str = "") -> Names:
    """All names of a new plugin.

    source: text of the module to be, in which the name of the class must not occur already.
    Raises ConfigError for a name that cannot be used, PluginError for a reserved kind.
    """
    kind.require_contract()
    if not _NAME.match(name) or len(name) > _LONGEST:
        better = _better(name)
        raise ConfigError(
            f"{name!r} is no name for a plugin",
            expected=f"small letters, digits and single underscores, at most {_LONGEST}, "
            "beginning with a letter",
            found=name,
            mend=f"try {better!r}" if better else None,
        )
    if name in _WORDS or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is no name for a plugin: where it is chosen it would be read as a word of "
            "YAML, of the command line or of Python",
            found=name,
            mend=f"try 'my_{name}'",
        )
    package = f"framework_{name}"
    distribution = package.replace("_", "-")
    if distribution in core_first_party()[0] or _is_installed(distribution):
        raise ConfigError(
            f"there is a distribution {distribution!r}, which this one would replace",
            found=name,
            mend="choose another name",
        )
    if importlib.util.find_spec(package) is not None:
        raise ConfigError(
            f"a package {package!r} is installed already",
            found=package,
            mend="choose another name, or uninstall the distribution that brings it",
        )
    return Names(
        kind=kind,
        name=name,
        distribution=distribution,
        package=package,
        cls=_class_name(name, source),
    )


def _is_installed(distribution: str) -> bool:
    try:
        importlib_metadata.distribution(distribution)
    except importlib_metadata.PackageNotFoundError:
        return False
    return True


def _better(name: str) -> str:
    """What was probably meant; "" if that is no name either."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    words = re.findall(r"[a-z0-9]+", spaced.lower())
    joined = "_".join(words).lstrip("0123456789_")[:_LONGEST]
    return joined if _NAME.match(joined) else ""


def _class_name(name: str, source: str) -> str:
    """The name in camel case; with a suffix where the module knows that word."""
    found = "".join(part.capitalize() for part in name.split("_"))
    taken = keyword.iskeyword(found) or hasattr(builtins, found)
    return f"{found}Plugin" if taken or re.search(rf"\b{found}\b", source) else found
