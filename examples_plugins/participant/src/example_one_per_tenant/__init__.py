"""A scheduler participant: a limit on how many requests of one tenant run at one time.

Others of that tenant stand aside and block nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, Field

from framework.contracts.participant import READY, Admission, SchedulerParticipant, Wait

if TYPE_CHECKING:
    from framework.core.request import Request


class Options(BaseModel, extra="forbid"):
    """Options of `TenantLimit`."""

    most: int = Field(default=1, ge=1, description="requests of one tenant that run at one time")


class TenantLimit(SchedulerParticipant):
    """Counts who was let in and who left."""

    Options = Options
    attends_all: ClassVar[bool] = True

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self._most = (options or Options()).most
        self._inside: dict[str, set[str]] = {}  # of tenants with a request that runs

    def _has_room(self, tenant: str) -> bool:
        return len(self._inside.get(tenant, ())) < self._most

    def admit(self, request: Request) -> Admission:
        tenant = request.input.tenant
        if self._has_room(tenant) or request.id in self._inside[tenant]:
            self._inside.setdefault(tenant, set()).add(request.id)
            return READY
        return Wait("tenant limit", lambda: self._has_room(tenant))

    def release(self, request: Request) -> None:
        inside = self._inside.get(request.input.tenant, set())
        inside.discard(request.id)
        if not inside:  # tenants come and go
            self._inside.pop(request.input.tenant, None)
