"""What plugins in the core get of a request, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from framework.errors import InputError
from framework.plugins.blame import blaming, expect
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.participant import FrontHalf
    from framework.contracts.sampling import SamplingParams


def encode_extras(sampling: SamplingParams) -> dict[str, bytes]:
    """The arguments that the client gives to plugins.  Raises InputError for what cannot travel."""
    import msgspec

    extras = {}
    for name, arguments in (sampling.extra_args or {}).items():
        try:
            extras[name] = msgspec.msgpack.encode(arguments)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(
                f"extra_args[{name!r}] cannot be sent to the engine: {error}",
                parameter="extra_args",
                expected="numbers, strings, lists and mappings",
                found=f"{shown(arguments):.80}",
            ) from error
    return extras


def read_extras(readers: Mapping[str, FrontHalf], sampling: SamplingParams) -> dict[str, bytes]:
    """What the front-end halves of participants say.  Raises what they raise."""
    extras = {}
    for name, reader in readers.items():
        with blaming(reader, "reading a request"):
            data = reader.read(sampling)
        if data is not None:
            extras[name] = expect(reader, "read", data, bytes)
    return extras
