"""What a caller may say of a request beside prompt and sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from framework.contracts.sampling_checks import invalid, is_finite
from framework.shown import is_whole

_INT64 = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """request_id: what the client calls it; None: the engine's own number.  priority: lower
    first, heeded by the policy "priority".  tenant: whose request it is, heeded by the policy
    "fair".  deadline: seconds from now after which it is given up; None: none.
    trace_headers: of the caller's trace.  adapter: name of a loaded one; None: the model as it is.

    Raises InputError that names the field.
    """

    request_id: str | None = None
    priority: int = 0
    tenant: str = ""
    deadline: float | None = None
    trace_headers: Mapping[str, str] = field(default_factory=dict)
    adapter: str | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.priority, int) and not isinstance(self.priority, bool)
        if not number or not -_INT64 <= self.priority < _INT64:
            raise invalid("priority", "a 64-bit integer, lower first", self.priority)
        named = "" if self.request_id is None else self.request_id
        for name, text in (("tenant", self.tenant), ("request_id", named)):
            if not isinstance(text, str) or not is_whole(text):
                raise invalid(name, "a string, without lone surrogates", text)
        if self.adapter is not None and not isinstance(self.adapter, str):
            raise invalid("lora_request", "the name of a loaded adapter, a string", self.adapter)
        if self.deadline is not None and not (is_finite(self.deadline) and self.deadline > 0):
            raise invalid("deadline", "seconds from now, a finite number above 0", self.deadline)
        if isinstance(self.deadline, int):  # no message can carry one beyond 64 bits
            object.__setattr__(self, "deadline", float(self.deadline))
