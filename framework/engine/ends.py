"""Ids that end a text, as the files of a model name them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from framework.errors import ModelError
from framework.shown import shown

if TYPE_CHECKING:
    from framework.contracts.tokenizer import Tokenizer

log = logging.getLogger("framework")
KEY = "eos_token_id"


def end_of_sequence_ids(
    tokenizer: Tokenizer,
    generation_config: Mapping[str, Any],
    config: Mapping[str, Any],
    vocab_size: int,
) -> frozenset[int]:
    """All ids in [0, vocab_size) that end a text: of the tokenizer, and of the generation
    configuration or else the model's.

    An id beyond the vocabulary can never come and is left out with a warning, as Transformers
    does without one.  Raises ModelError for what is no id.
    """
    named = _ids(generation_config.get(KEY), "generation configuration")
    if named is None:
        named = _ids(config.get(KEY), "configuration")
    ids = {*(named or ()), *tokenizer.eos_ids}
    strange = sorted(i for i in ids if not 0 <= i < vocab_size)
    if strange:
        log.warning("%s %s is not in the vocabulary of %d tokens", KEY, strange, vocab_size)
    return frozenset(ids.difference(strange))


def _ids(value: Any, where: str) -> Iterable[int] | None:
    listed = value if isinstance(value, list | tuple) else [value]
    if value is None:
        return None
    if any(isinstance(i, bool) or not isinstance(i, int) for i in listed):
        raise ModelError(
            f"the model's {where} is invalid: {KEY}",
            expected="an id, a list of ids, or null",
            found=shown(value),
            mend=f"correct {KEY} in the model's files",
        )
    return listed
