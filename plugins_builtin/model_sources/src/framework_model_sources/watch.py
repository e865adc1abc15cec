"""One large file of a hub, fetched with an end to retrying.

huggingface_hub tries again for as long as each attempt brings something.  Where the hub does not
resume, an attempt begins anew, and a connection that always breaks at the same place would be
tried for ever.
"""

from __future__ import annotations

from typing import Any

from framework.errors import ModelError

RESTARTS = 3
"""How often a file may begin anew."""


class Watch:
    """What arrived of one file.  size: bytes it should have, or None.  best: most bytes that
    were there at one time."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.size: int | None = None
        self.best = 0
        self._there = 0
        self._restarts = 0

    def begin(self, size: int | None, there: int) -> None:
        self.size, self._there = size, there

    def add(self, count: int) -> None:
        """count: bytes that arrived, or below zero: that were thrown away.  Raises ModelError."""
        self._there += count
        self.best = max(self.best, self._there)
        if count < 0:
            self._restarts += 1
            if self._restarts > RESTARTS:
                raise self.error(f"it broke off {self._restarts + 1} times")

    def error(self, why: str) -> ModelError:
        """The file did not arrive."""
        return ModelError(
            f"{self.where} cannot be fetched: {why}",
            expected="its whole size" if self.size is None else f"{self.size} bytes",
            found=f"at most {self.best} bytes",
            mend="run again: what can be resumed is; HF_ENDPOINT names another hub",
        )


def bar_for(watch: Watch) -> type[Any]:
    """A class of progress bars to be given to huggingface_hub, which tells them everything."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            watch.begin(kwargs.get("total"), int(kwargs.get("initial") or 0))
            super().__init__(*args, **kwargs)

        def update(self, n: float | None = 1) -> bool | None:
            watch.add(int(n or 0))
            shown: bool | None = super().update(n)
            return shown

    return Bar
