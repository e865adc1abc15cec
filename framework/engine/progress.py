"""A progress bar for generation: prompts done, tokens per second."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class GenerationProgress:
    """Draws to a terminal only; elsewhere, and with `show` False, it does nothing."""

    def __init__(self, total: int, *, show: bool) -> None:
        self._total = total
        self._show = show
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> GenerationProgress:
        if not self._show:
            return self
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        console = Console(stderr=True)
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                Elapsed(),
                TextColumn("{task.fields[rate]}"),
                console=console,
            )
            self._task = self._bar.add_task("prompts", total=self._total, rate="")
            self._bar.start()
        return self

    @property
    def active(self) -> bool:
        """Something is drawn."""
        return self._bar is not None

    def update(self, *, prompts: int, tokens: int) -> None:
        """Prompts done and tokens generated so far."""
        if self._bar is None:
            return
        elapsed = self._bar.tasks[0].elapsed or 0.0
        rate = f"{tokens / elapsed:.1f} tokens/s" if elapsed else ""
        self._bar.update(self._task, completed=prompts, rate=rate)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
