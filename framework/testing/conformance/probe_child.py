"""The other side of `probe`: runs as a program, imports, and writes down what happened."""

from __future__ import annotations

import atexit
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Callable

# As they are now: a plugin may replace them in their module.
from json import dumps, loads
from pathlib import Path
from typing import Any

from framework.plugins.blame import told
from framework.plugins.tied import hold_on
from framework.testing.conformance import patches
from framework.testing.conformance.process import differences, read
from framework.testing.conformance.shared import SHARED, Shared, file_of
from framework.testing.conformance.stopwatch import Stopwatch

_NETWORK = ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto")
_PROCESS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.system", "os.posix_spawn", "os.exec")


class _Ears:
    """Hears what is done below Python, through an audit hook, while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.network: list[str] = []
        self.processes: list[str] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in _NETWORK:
            self.network.append(f"{event}{arguments[-1:]!r:.120}")
            raise OSError(f"no network during an import ({event})")
        if event in _PROCESS:
            self.processes.append(f"{event}{arguments[:1]!r:.120}")


def _at_exit(top: str) -> list[str]:
    """What the package `top` registers from now on for the end of the process: each process that
    loads it would wait for that.  (Libraries that it imports may do so.)"""
    found: list[str] = []
    register = atexit.register

    def listen(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        module = str(sys._getframe(1).f_globals.get("__name__"))
        if module.partition(".")[0] == top and not found:
            found.append("what is called at the end of the process")
        return register(function, *args, **kwargs)

    atexit.register = listen  # type: ignore[assignment]
    return found


def core_modules() -> None:
    """Import the contracts and the plugin system, so that a change to them is a change."""
    for package in ("framework.contracts", "framework.plugins"):
        home = importlib.import_module(package)
        for found in pkgutil.iter_modules(home.__path__, f"{package}."):
            importlib.import_module(found.name)


def _rows() -> dict[str, Shared]:
    """What is read before and after: what all share, and what libraries change in a process that
    uses them, so that it tells something only here."""
    files = _open_files()
    return {
        **SHARED,
        "sys.meta_path": Shared(lambda: list(sys.meta_path)),
        "sys.path_hooks": Shared(lambda: list(sys.path_hooks)),
        "files that are open": Shared(lambda: [file_of(number) for number in files]),
    }


def _open_files() -> list[int]:
    """Descriptors; the standard ones alone where the system does not list all."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = [0, 1, 2]
    return [number for number in numbers if file_of(number) is not None]


def _import(value: str) -> Any:
    module, _, attribute = value.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in attribute.partition("[")[0].strip().split("."):
        found = getattr(found, part)
    return found


def _exercise(cls: Any, exercise: str, options: dict[str, Any]) -> float:
    """Seconds that a function takes with a new instance."""
    function = _import(exercise)
    plugin = cls(None if cls.Options is None else cls.Options(**options))
    watch = Stopwatch()
    function(plugin)
    return watch.seconds()


def _last_words(done: Callable[[], None]) -> None:
    """Write the answer, then leave without whatever the plugin set up for the end."""
    if sys.stdout is not None:
        sys.stdout.flush()
    done()
    os._exit(0)


def main(value: str, answer: str, exercise: str = "", options: str = "{}") -> None:
    """Import `value`, exercise an instance if so asked, and write the findings to the file
    `answer`."""
    hold_on()
    core_modules()
    from framework.testing.conformance.probe import HEAVY

    rows = _rows()
    package = value.partition(":")[0].partition(".")[0].strip()
    ends = _at_exit(package)
    ears, state = _Ears(), read(rows)
    core, library = patches.of_core(), patches.of_library()
    # What a .pth file of the environment loads at every start is no doing of the plugin.
    there = set(sys.modules)
    threads = set(threading.enumerate())
    error = ""
    ears.on = True
    exercised = 0.0
    watch = Stopwatch()
    try:
        cls = _import(value)
        if exercise:
            exercised = _exercise(cls, exercise, loads(options))
    except BaseException as problem:  # an exit is a finding, too
        error = told(problem)
    seconds = exercised if exercise else watch.seconds()
    ears.on = False
    replaced = [
        *patches.replaced(core, patches.of_core()),
        *patches.by(library, patches.of_library(), package),
    ]
    findings = {
        "error": error,
        "seconds": seconds,
        "heavy": [name for name in HEAVY if name in sys.modules and name not in there],
        "network": ears.network,
        "processes": ears.processes,
        "threads": [t.name for t in threading.enumerate() if t not in threads],
        "changes": [*(name for name, _, _ in differences(rows, state)), *ends],
        "patches": [str(place) for place in replaced],
    }
    _last_words(lambda: _write(answer, findings))


def _write(answer: str, findings: dict[str, object]) -> None:
    file = Path(answer)
    part = file.with_suffix(".part")
    part.write_text(dumps(findings))
    part.replace(file)


if __name__ == "__main__":
    main(*sys.argv[1:5])
