"""Kind `endpoint`: routes of an HTTP server.

A third party's routes lie under /plugins/NAME/ unless the operator grants it others; first-party
ones lie at the root.  Two endpoints with the same route stop the start.

All endpoints share one event loop: a handler that blocks in it holds up every other request,
/health among them.  What takes a while without `await` belongs into a thread.

The host answers for an endpoint what is common to all: keys, limits on size, request ids, and
the errors of this project, which become the status that belongs to them (InputError: 400).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from framework.contracts.base import Contract

if TYPE_CHECKING:
    import fastapi
    from pydantic import SecretStr

    from framework.contracts.service import Service


class Endpoint(Contract):
    """public: its routes need no key of the host's."""

    kind: ClassVar[str] = "endpoint"
    public: ClassVar[bool] = False

    @property
    def own_keys(self) -> Sequence[SecretStr]:
        """Keys that its routes ask for themselves, where those of clients do not open them.  The
        host does not start where one of them is a client's."""
        return ()

    @abstractmethod
    def routes(self, service: Service) -> fastapi.APIRouter:
        """The routes, relative to where the endpoint lies.  Called once, before any request."""
