"""A logits processor: a request says which tokens must not be produced.

SamplingParams(extra_args={"ban_tokens": [5, 17]})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framework.contracts.logits_processor import LogitsProcessor
from framework.errors import InputError

if TYPE_CHECKING:
    import torch

    from framework.contracts.sampling import SamplingParams
    from framework.contracts.step import I32, AdmittedRequest


def _banned(sampling: SamplingParams | None) -> object:
    extra = sampling.extra_args if sampling is not None else None
    return (extra or {}).get("ban_tokens")


class BanTokens(LogitsProcessor):
    """Sets the logits of banned tokens to minus infinity."""

    examples = ([5, 17], [0])

    def __init__(self, options: None = None) -> None:
        super().__init__(options)
        self._banned: dict[int, list[int]] = {}

    def validate(self, sampling: SamplingParams) -> None:
        banned = _banned(sampling)
        if banned is None:
            return
        if not isinstance(banned, list) or not all(type(t) is int and t >= 0 for t in banned):
            raise InputError(
                "ban_tokens is invalid",
                parameter="extra_args",
                expected="a list of token ids >= 0",
                found=repr(banned),
            )

    def admit(self, request: AdmittedRequest) -> None:
        banned = _banned(request.sampling)
        if isinstance(banned, list):
            self._banned[request.slot] = banned

    def drop(self, slot: int) -> None:
        self._banned.pop(slot, None)

    def apply(self, logits: torch.Tensor, slots: I32, outputs: tuple[I32, ...]) -> None:
        for row, slot in enumerate(slots.tolist()):
            for token in self._banned.get(slot, ()):
                if token < logits.shape[1]:
                    logits[row, token] = -float("inf")
