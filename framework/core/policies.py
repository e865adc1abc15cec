"""The built-in scheduling policies, and a policy of any plugin kept from failing a step."""

from __future__ import annotations

import logging
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from framework.contracts.base import name_of
from framework.contracts.scheduling_policy import RequestArrays, SchedulingPolicy
from framework.plugins.blame import blaming, of_plugin, told
from framework.shown import shown

logger = logging.getLogger("framework.policies")


class FirstComeFirstServed(SchedulingPolicy):
    """In order of arrival."""

    keys_are_fixed: ClassVar[bool] = True

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        return np.zeros(len(requests))


class PriorityOptions(BaseModel, extra="forbid"):
    """Options of `Priority`."""

    ageing_seconds: float | None = Field(
        default=300.0,
        gt=0,
        le=1e9,  # its product with any priority is finite
        description="seconds of waiting that are worth one step of priority; none: nothing is, "
        "and a request may wait for ever behind better ones",
    )


class Priority(SchedulingPolicy):
    """Lower priority values first; among equals in order of arrival.

    A request ages: waiting `ageing_seconds` makes up for one step of priority.  So one of
    priority p is overtaken by newcomers of priority q < p only during its first
    (p - q) * ageing_seconds, and no request waits for ever.  As all age alike, the order of
    two requests never changes, and a key is computed once: priority * ageing + arrival.
    """

    keys_are_fixed: ClassVar[bool] = True
    Options = PriorityOptions

    def __init__(self, options: BaseModel | None = None) -> None:
        super().__init__(options)
        chosen = options if isinstance(options, PriorityOptions) else PriorityOptions()
        self._ageing = chosen.ageing_seconds

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        if self._ageing is None:
            return requests.priority.astype(np.float64)
        return requests.priority * self._ageing + requests.arrived_at


def checked(policy: SchedulingPolicy) -> SchedulingPolicy:
    """The policy, but what it answers is never taken on trust.

    When it raises, or answers no n finite numbers, the requests it was asked about come in
    order of arrival, and the log says so: an order must be had, and none of them is at fault.
    """
    return _CheckedWithAccounts(policy) if keeps_account(policy) else _Checked(policy)


def keeps_account(policy: SchedulingPolicy) -> bool:
    """Whether it wants to be told what is planned: one that does not pays nothing for it."""
    return type(policy).served is not SchedulingPolicy.served


class _Checked(SchedulingPolicy):
    def __init__(self, policy: SchedulingPolicy) -> None:
        super().__init__()
        self._policy = policy
        self._told: set[str] = set()
        self.plugin_id = policy.plugin_id
        with blaming(policy, "telling whether its keys are fixed"):
            self.keys_are_fixed = bool(policy.keys_are_fixed)  # type: ignore[misc]

    def keys(self, requests: RequestArrays) -> npt.NDArray[np.float64]:
        count = len(requests)
        try:
            answer = self._policy.keys(requests)
            # Of whatever kind of number; a complex one is none that can be ordered.
            keys = np.asarray(answer).astype(np.float64, casting="same_kind")
        except BaseException as error:
            self._tell("keys", told(of_plugin(error)), error)
            return np.zeros(count)
        if keys.shape != (count,) or not np.isfinite(keys).all():
            self._tell("keys", f"found {shown(answer)}, expected {count} finite numbers", None)
            return np.zeros(count)
        return keys

    def _tell(self, method: str, what: str, error: BaseException | None) -> None:
        """Once per fault: a policy is asked in every step."""
        kind = f"{method} {type(error).__name__}"
        if kind not in self._told:
            self._told.add(kind)
            logger.error(
                "scheduling policy %s failed in %s: %s; requests come in order of arrival "
                "wherever it fails",
                name_of(self._policy),
                method,
                what,
                exc_info=error,
            )


class _CheckedWithAccounts(_Checked):
    def served(self, requests: RequestArrays, tokens: npt.NDArray[np.int64]) -> None:
        try:
            self._policy.served(requests, tokens)
        except BaseException as error:
            self._tell("served", told(of_plugin(error)), error)
