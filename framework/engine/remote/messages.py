"""What the two ends say to each other, and how it is written on a wire.

msgpack, typed on both sides: nothing on the wire can name code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from framework import errors
from framework.contracts.messages import EngineInput, EngineOutputs
from framework.errors import FrameworkError
from framework.plugins.blame import told
from framework.shown import printable


class WireError(msgspec.Struct, frozen=True, kw_only=True):
    """An error as data.  kind: name of a class in `framework.errors`.  Arguments that are no
    text were made text, and of all text what UTF-8 cannot carry is escaped."""

    kind: str
    message: str
    arguments: dict[str, str | float | None] = {}

    @classmethod
    def of(cls, error: BaseException) -> WireError:
        """Any error; one that is not ours becomes a FrameworkError that names its class."""
        if not isinstance(error, FrameworkError):
            return cls(kind="FrameworkError", message=told(error))
        arguments = {
            key: value if isinstance(value, float | None) else printable(str(value))
            for key, value in vars(error).items()
            if key != "message" and not key.startswith("_")
        }
        return cls(kind=type(error).__name__, message=printable(error.message), arguments=arguments)

    def error(self) -> FrameworkError:
        """The error again."""
        kind = getattr(errors, self.kind, FrameworkError)
        arguments: dict[str, Any] = dict(self.arguments)
        made: FrameworkError = kind(self.message, **arguments)
        return made


class Add(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Queue all of these or, if one cannot be served, none.  Answered by a Reply."""

    number: int
    inputs: tuple[EngineInput, ...]


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End requests; the end of each comes with the Outputs."""

    request_ids: tuple[str, ...]


class Call(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Call a method of `server.METHODS`.  Answered by a Reply."""

    number: int
    method: str
    arguments: dict[str, Any] = {}


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """End.  drain: what was added is served first; without it, it is aborted."""

    drain: bool = False


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The core is ready.  notes: its start-up lines.  checked: plugins that it has in use,
    for the comparison with those of the front end.  cache: facts of it, for statistics.
    generates, embedding_size, class_labels, prompt_embeds: see RunnerInfo."""

    max_model_len: int
    vocab_size: int
    generates: bool = True
    embedding_size: int | None = None
    class_labels: tuple[str, ...] = ()
    prompt_embeds: int | None = None
    notes: tuple[str, ...] = ()
    resolved: bytes = b""
    cache: dict[str, str] = {}


class Outputs(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What one step brought."""

    outputs: EngineOutputs


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The answer to an Add or a Call."""

    number: int
    value: Any = None
    error: WireError | None = None


class Beat(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The process lives.  busy: seconds for which the step that is being made was seen."""

    busy: float = 0.0


class Died(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The core stopped after a fault, or could not start; nothing follows."""

    error: WireError


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message to the core that is none of them, or holds a value of another type: a plugin of the
    front end may have put it there.  number: of the Add or Call that it was meant to be."""

    number: int | None
    error: FrameworkError


class _Numbered(msgspec.Struct, frozen=True):
    number: int


Request = Add | Abort | Call | Stop
Answer = Started | Outputs | Reply | Beat | Died


def _encode(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    raise TypeError(f"a {type(value).__name__} cannot be sent")


def _decode(kind: Any, value: Any) -> Any:
    if getattr(kind, "__origin__", kind) is np.ndarray:
        dtype, shape, data = value
        return np.frombuffer(data, np.dtype(dtype)).reshape(shape)
    raise TypeError(f"a {kind} cannot be received")


def request_coder() -> tuple[msgspec.msgpack.Encoder, msgspec.msgpack.Decoder[Request]]:
    """Encoder and decoder of what goes to the core."""
    return (
        msgspec.msgpack.Encoder(enc_hook=_encode),
        msgspec.msgpack.Decoder(Request, dec_hook=_decode),
    )


def read_request(decoder: msgspec.msgpack.Decoder[Request], data: bytes) -> Request | Unreadable:
    """A message to the core.  One that cannot be read concerns whoever sent it, and no other."""
    try:
        return decoder.decode(data)
    except Exception as error:
        unread = FrameworkError(
            "the engine core cannot read what it was asked",
            expected="values of the types that EngineInput and the methods of the core have",
            found=told(error),
            mend="report this; a plugin of the front end may have made the value",
        )
    try:
        return Unreadable(msgspec.msgpack.decode(data, type=_Numbered).number, unread)
    except Exception:
        return Unreadable(None, unread)


def answer_coder() -> tuple[msgspec.msgpack.Encoder, msgspec.msgpack.Decoder[Answer]]:
    """Encoder and decoder of what comes from the core."""
    return (
        msgspec.msgpack.Encoder(enc_hook=_encode),
        msgspec.msgpack.Decoder(Answer, dec_hook=_decode),
    )
