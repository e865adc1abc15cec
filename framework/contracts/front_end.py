"""Kind `front_end`: how a running engine is reached, such as an HTTP server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.base import Contract

if TYPE_CHECKING:
    import asyncio

    from framework.contracts.endpoint import Endpoint
    from framework.contracts.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Mounted:
    """An endpoint in use.  key: kind:name@distribution.  prefix: where its routes lie, "" is
    the root."""

    endpoint: Endpoint
    key: str
    prefix: str


class FrontEnd(Contract):
    """One way in.  serves_endpoints: whether it speaks HTTP and serves endpoints; they are not
    loaded for one that does not."""

    kind: ClassVar[str] = "front_end"
    serves_endpoints: ClassVar[bool] = True

    @abstractmethod
    async def serve(
        self, service: Service, endpoints: Sequence[Mounted], stop: asyncio.Event
    ) -> None:
        """Serve until `stop` is set; then let requests that run end, and return.  When it is
        cancelled it ends at once.  In both cases its address is free again, and nothing is left.

        The errors of this project become answers (InputError and UnsupportedError: 400,
        OverloadedError: 429 with Retry-After, EngineDeadError: 503), any other error of an
        endpoint a 500 that does not tell what it was.

        Raises ConfigError for an address that cannot be used and PluginError for two
        endpoints with one route, before anything is served.
        """
