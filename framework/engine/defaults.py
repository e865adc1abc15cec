"""Sampling parameters that a model recommends in its generation configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.contracts.sampling import SamplingParams
from framework.errors import InputError, ModelError

_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}


def default_sampling(
    generation_config: Mapping[str, Any], usual: Mapping[str, Any] | None = None
) -> SamplingParams:
    """SamplingParams with the model's values, and with `usual` ones where it has none; raises
    ModelError for one out of range.

    `do_sample` is not read: like the rest of the field, sampling is on unless the
    temperature says otherwise.
    """
    values = {
        ours: generation_config[theirs]
        for theirs, ours in _FIELDS.items()
        if generation_config.get(theirs) is not None
    }
    own = SamplingParams(**(usual or {}))  # what is wrong with these is no fault of the model
    try:
        return own.replace(**values)
    except InputError as error:
        raise ModelError(
            f"the model's generation configuration is invalid: {error.message}",
            expected=error.expected,
            found=error.found,
            mend="correct generation_config.json, or pass sampling_params",
        ) from error
