"""What an operator may do with an engine whose core runs elsewhere."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.service import Administration


class Administered(ABC):
    """The part of an engine that fulfils `Administration`."""

    @property
    @abstractmethod
    def config(self) -> EngineConfig:
        """What the engine runs with."""

    @abstractmethod
    async def _call(self, method: str, **arguments: Any) -> Any:
        """See `AsyncCore.call`."""

    @property
    def administration(self) -> Administration:
        """What only an operator may do."""
        return self

    async def pause(self) -> None:
        """Compute nothing more until `resume`; no token is lost."""
        await self._call("pause")

    async def resume(self) -> None:
        """Go on where `pause` stopped; an engine that sleeps sleeps on."""
        await self._call("resume")

    async def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes."""
        return bool(await self._call("reset_prefix_cache"))

    async def sleep(self, level: int = 1) -> None:
        """Give back the memory of the cache, with level 2 that of the weights too, until
        `wake_up`; cached prefixes are forgotten.  Requests wait meanwhile, old ones and new ones;
        none is lost.  Raises InputError for another level, UnsupportedError if the model runner
        cannot sleep, OverloadedError while it cannot yet."""
        await self._call("sleep", level=level)

    async def wake_up(self) -> None:
        """Take the memory again; if that fails it sleeps on, and may be asked again."""
        await self._call("wake_up")

    async def is_sleeping(self) -> bool:
        """Whether `sleep` was called and `wake_up` was not.  A core that was started anew is
        awake."""
        return bool(await self._call("sleeping"))

    async def start_profile(self) -> None:
        """Trace all steps from now on, which are slower for it.  Raises UnsupportedError if the
        model runner has no profiler or nowhere to write to, InputError if it runs already."""
        await self._call("start_profile")

    async def stop_profile(self) -> Mapping[str, Any]:
        """End the trace; what the runner tells of it, such as the file where it lies.  Raises
        InputError if none runs."""
        found: Mapping[str, Any] = await self._call("stop_profile")
        return found

    def settings(self) -> Mapping[str, Any]:
        """Every value of the configuration by "section.field", secrets hidden."""
        from framework.config.settings import shown_settings

        return shown_settings(self.config)
