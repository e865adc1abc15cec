"""A server of the echo model in a process of its own, for tests of endpoints and front ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from urllib.request import urlopen

from framework.testing.fake_model import MODEL, fake_plugins

START_SECONDS = 120.0
_PROGRAM = """
from framework.plugins.tied import hold_on
hold_on()
from framework.cli import main
main()
"""


@dataclass
class Served:
    """process: of the front end.  url: where it listens.  lines: what it has logged so far."""

    process: subprocess.Popen[str]
    url: str
    lines: list[str] = field(default_factory=list)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 60) -> int:
        """Send a signal and wait for the end; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout)

    def kill(self) -> None:
        """End it at once; the core ends by itself."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def counted(self, name: str, *labels: str) -> float:
        """The sum of a metric over all that has these labels, each as `name="value"`."""
        with urlopen(f"{self.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = [line for line in text.splitlines() if re.match(rf"framework:{name}[{{ ]", line)]
        return sum(float(f.rpartition(" ")[2]) for f in found if all(x in f for x in labels))

    def children(self) -> list[int]:
        """Processes that it started, on Linux: the engine core."""
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]


def start_server(*arguments: str, root: tuple[str, ...] = ()) -> Served:
    """`framework ROOT serve ARGUMENTS` for the echo model, unless these name another or another
    executor, on a free port, once it listens.  It ends with this process, whatever way that ends.

    Raises RuntimeError with what it logged where it ends before that.
    """
    plugins = [f"--plugin={key}={value}" for key, value in fake_plugins().items()]
    given: tuple[str, ...] = () if "--model" in arguments else ("--model", MODEL)
    if not any(argument.startswith("executor=") for argument in arguments):
        given += ("--set", "executor=echo")
    command = [
        *(sys.executable, "-c", _PROGRAM),
        *plugins,
        *root,
        *("serve", *given, "--port", "0"),
        *arguments,
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEWORK_")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        env=environment,
    )
    server = Served(process, "")
    listening = threading.Event()
    threading.Thread(target=_read, args=(server, listening), daemon=True).start()
    listening.wait(START_SECONDS)
    if not server.url:
        server.kill()
        raise RuntimeError(f"the server did not start: {''.join(server.lines)}")
    return server


def _read(server: Served, listening: threading.Event) -> None:
    """Keep what it logs; a pipe that nobody reads would stop it."""
    assert server.process.stderr is not None
    for line in server.process.stderr:
        server.lines.append(line)
        found = re.search(r"listening on (\S+)", line)
        if found:
            server.url = found[1]
            listening.set()
    listening.set()
