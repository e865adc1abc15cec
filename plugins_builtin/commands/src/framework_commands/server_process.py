"""A `framework serve` of one's own: started, waited for, and ended whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType

from framework.errors import FrameworkError

_LISTENING = re.compile(r"listening on (\S+)")
_KEPT = 40
"""Last lines of its log that an error may show."""


class ServerProcess:
    """arguments: of `framework`, from the root options on, such as ("serve", "--port", "0").

    environment: beside that of this process, whose FRAMEWORK_ variables it keeps unless `bare`.
    Use it as a context manager: the server is gone when the block is left, and whenever this
    process ends, by whatever signal.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        bare: bool = False,
    ) -> None:
        kept = {k: v for k, v in os.environ.items() if not (bare and k.startswith("FRAMEWORK_"))}
        self._environment = {**kept, **(environment or {})}
        self._command = [sys.executable, "-m", "framework_commands.server_child", *arguments]
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._known = threading.Event()
        self._url: str | None = None
        self._process: subprocess.Popen[str] | None = None

    def start(self, seconds: float) -> str:
        """Its address, once it listens.  Raises FrameworkError if it ends, or takes longer."""
        # As this process finds its modules, so does the server.
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # what ties it to this process: see framework.plugins.tied
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # the end takes its group along
            text=True,
            errors="replace",
            env={**self._environment, "PYTHONPATH": path},
        )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        there = self._known.wait(seconds)
        if self._url is not None:
            return self._url
        self.stop()
        raise FrameworkError(
            "the server did not start" if there else "the server takes too long to start",
            expected=f"`listening on ...` within {seconds:g} s",
            found=self.log or "an end without a word",
        )

    @property
    def pid(self) -> int | None:
        """Its process, once it was started."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is still there."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """The last lines that it wrote."""
        return "\n".join(self._lines)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20.0) -> int | None:
        """End it: with a signal, and after `seconds` by force.  Its exit code; None if it was
        never started.  May be called twice."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(seconds)
        except BaseException as error:
            process.kill()
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return process.returncode

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            for line in process.stderr:
                self._lines.append(line.rstrip())
                found = _LISTENING.search(line)
                if found and self._url is None:
                    self._url = found[1]
                    self._known.set()
        self._known.set()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
