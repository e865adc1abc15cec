"""`PoolingParams`: what a request asks that is pooled into one vector instead of continued."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from framework.contracts.named import NamedFields
from framework.contracts.sampling_checks import invalid

Pooling = Literal["mean", "last", "cls"]
"""mean: of all tokens.  last, cls: the last and the first token's state alone."""

POOLINGS: tuple[str, ...] = get_args(Pooling)
PoolingTask = Literal["embed", "classify"]
"""embed: a vector of the text.  classify: a number for each class that the model knows."""

POOLING_TASKS: tuple[str, ...] = get_args(PoolingTask)
_EMBED_ONLY = ("pooling", "normalize", "dimensions")
_INT32 = 2**31


class PoolingParams(
    msgspec.Struct, kw_only=True, omit_defaults=True, frozen=True, metaclass=NamedFields
):
    """Parameters of one request for a vector.  Invalid values raise `InputError` that names the
    field.

    task: a `PoolingTask`; with "classify" there is nothing to say of the pooling, whose head is
        the model's.
    pooling: a `Pooling`.  normalize: scale the vector to length 1.  None: as the model says.
    dimensions: keep so many of the first numbers, before the vector is scaled; of use with models
        that were trained for it.  None: all.
    truncate_prompt_tokens: keep this many of the prompt's first tokens, those among them that the
        tokenizer puts around a text; -1: as many as the model takes.  None: a longer prompt is
        refused.
    use_activation: probabilities of the classes, False: the numbers that they are made of.  None:
        True; only with "classify".
    """

    task: str = "embed"
    pooling: str | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    use_activation: bool | None = None

    def __post_init__(self) -> None:
        if self.task not in POOLING_TASKS:
            raise invalid("task", f"one of {', '.join(POOLING_TASKS)}", self.task)
        if self.use_activation is not None and not isinstance(self.use_activation, bool):
            raise invalid("use_activation", "True, False or None", self.use_activation)
        others = ("use_activation",) if self.task == "embed" else _EMBED_ONLY
        for name in others:
            if getattr(self, name) is not None:
                raise invalid(name, f"None with task={self.task!r}", getattr(self, name))
        if self.pooling is not None and self.pooling not in POOLINGS:
            raise invalid("pooling", f"one of {', '.join(POOLINGS)}, or None", self.pooling)
        if self.normalize is not None and not isinstance(self.normalize, bool):
            raise invalid("normalize", "True, False or None", self.normalize)
        if not _is_count(self.dimensions):
            raise invalid("dimensions", "an integer >= 1, or None", self.dimensions)
        found = self.truncate_prompt_tokens
        if not _is_count(found) and not (isinstance(found, int) and found == -1):
            raise invalid("truncate_prompt_tokens", "an integer >= 1, -1 or None", found)

    def check(self, embedding_size: int) -> None:
        """Raise InputError for more numbers than the model's vectors have."""
        if self.dimensions is not None and self.dimensions > embedding_size:
            raise invalid("dimensions", f"at most {embedding_size}", self.dimensions)


def _is_count(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _INT32
