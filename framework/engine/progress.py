"""Requests until all are done, with a progress bar: prompts done, tokens per second."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from framework.engine.interrupt import kept_interrupt
from framework.engine.prepared import kept

if TYPE_CHECKING:
    from framework.engine.client import InProcessClient
    from framework.engine.outputs import RequestOutput
    from framework.engine.prepared import PreparedRequest


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


def run_all(
    client: InProcessClient, requests: Sequence[PreparedRequest], *, show: bool
) -> list[RequestOutput]:
    """The only output of each request; they run together.  Ctrl-C ends them."""
    ids = [request.request_id for request in requests]
    before = client.num_generated
    done: list[RequestOutput] = []
    try:
        with kept(requests):
            client.add(requests)
            with kept_interrupt(), GenerationProgress(len(ids), show=show) as progress:
                for request_id in ids:
                    while (output := client.take(request_id)) is None:
                        client.advance()
                        if progress.active:
                            left, tokens = client.num_unfinished(ids), client.num_generated
                            progress.update(prompts=len(ids) - left, tokens=tokens - before)
                    done.append(output)
            client.settle()
    except BaseException:
        client.drop(ids)
        raise
    return done
