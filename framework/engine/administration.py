"""What an operator may do with an engine whose core runs elsewhere."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from framework.contracts.messages import EngineStats
from framework.engine.adapters import LOADING, POLL_SECONDS, check_loaded, load_arguments

if TYPE_CHECKING:
    from framework.config.sections import EngineConfig
    from framework.contracts.service import Administration
    from framework.engine.adapters import AdapterDirectory, LoadedAdapter


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
    @abstractmethod
    def directory(self) -> AdapterDirectory:
        """Adapters by name."""

    @property
    def adapters(self) -> Sequence[LoadedAdapter]:
        """Adapters that requests may name."""
        return tuple(self.directory)

    @property
    def administration(self) -> Administration:
        """What only an operator may do."""
        return self

    async def check_integrity(self) -> None:
        """Raises IntegrityError if any count of the engine is wrong.  For tests."""
        await self._call("check_integrity")

    async def stats(self) -> EngineStats:
        """Running and waiting requests, pages, hits of the prefix cache, preemptions."""
        return EngineStats(**await self._call("stats"))

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

    async def load_adapter(
        self, name: str, path: str, *, pinned: bool = False, load_inplace: bool = False
    ) -> None:
        """As `LLM.load_adapter`."""
        entry = self.directory.begin(name, path, pinned=pinned, again=load_inplace)
        try:
            told = await self._control("load", load_arguments(entry))
            while told["state"] == LOADING:
                await asyncio.sleep(POLL_SECONDS)
                told = await self._control("state", {"id": entry.number})
            check_loaded(entry, told)
            before = self.directory.add(entry, again=load_inplace)
        except BaseException:  # also of a caller who went away
            await asyncio.shield(self._control("unload", {"id": entry.number}))
            raise
        if before is not None:
            await self._control("unload", {"id": before.number})

    async def unload_adapter(self, name: str) -> None:
        """As `LLM.unload_adapter`."""
        await self._control("unload", {"id": self.directory.remove(name).number})

    async def pin_adapter(self, name: str, pinned: bool = True) -> None:
        """As `LLM.pin_adapter`."""
        entry = self.directory.find(name)
        await self._control("pin", {"id": entry.number, "pinned": pinned})
        self.directory.pin(name, pinned)

    async def _load_given(self) -> None:
        """The adapters of the configuration."""
        for name, path in self.config.adapters.lora_modules.items():
            await self.load_adapter(name, path)

    async def _control(self, op: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of the participant that serves adapters."""
        server = self.directory.participant
        found: Mapping[str, Any] = await self._call(
            "control", name=server, op=op, arguments=arguments
        )
        return found

    def settings(self) -> Mapping[str, Any]:
        """Every value of the configuration by "section.field", secrets hidden."""
        from framework.config.settings import shown_settings

        return shown_settings(self.config)
