"""Adapters for participants that serve them: a runner that only keeps books of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from framework.contracts.lora import AdapterLimits
from framework.errors import UnsupportedError

LIMITS = AdapterLimits(in_step=2, kept=3, rank=8)
FEATURES = frozenset(("logprobs", "prompt_logprobs", "drafts", "adapters"))
"""Of the runner."""
DIFFERENT = 4
"""Adapters that requests name: more than are kept."""


class AdapterBooks:
    """Operations of a model runner; an adapter is ready at the second look."""

    def __init__(self) -> None:
        self._looks: dict[int, int] = {}

    def control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See ModelRunner.control."""
        if op != "adapters":
            raise UnsupportedError("the model runner has no such operation", found=op)
        number = arguments["id"]
        if arguments["action"] == "load":
            self._looks.setdefault(number, 0)
        if arguments["action"] == "drop":
            self._looks.pop(number, None)
        if number not in self._looks:
            return {"state": "absent"}
        self._looks[number] += 1
        if self._looks[number] < 3:
            return {"state": "loading"}
        return {"state": "ready", "digest": bytes([number]), "rank": 8, "num_bytes": 1}


def naming(participant: str, number: int) -> dict[str, Any]:
    """Fields of the EngineInput of a request that names an adapter."""
    adapter = 1 + number % DIFFERENT
    told = {"root": f"/adapters/{adapter}", "pinned": False}
    return {"adapter": adapter, "extras": {participant: msgspec.msgpack.encode(told)}}
