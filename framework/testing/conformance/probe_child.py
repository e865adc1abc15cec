"""The other side of `probe`: runs as a program, imports, and writes down what happened."""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import locale
import logging
import os
import pkgutil
import random
import signal
import sys
import threading
import types
import warnings
from collections.abc import Callable, Collection, Iterator

# As they are now: a plugin may replace them in their module.
from json import dumps, loads
from pathlib import Path
from typing import Any

from framework.plugins.blame import told
from framework.plugins.tied import hold_on
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


def _core_modules() -> None:
    """Import the contracts and the plugin system, so that a change to them is a change."""
    for package in ("framework.contracts", "framework.plugins"):
        home = importlib.import_module(package)
        for found in pkgutil.iter_modules(home.__path__, f"{package}."):
            importlib.import_module(found.name)


def _attributes() -> dict[tuple[str, str], int]:
    """Identity of everything in the core's modules and of the classes in them."""
    seen: dict[tuple[str, str], int] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "framework" or name.startswith(__package__ or "-"):
            continue
        for attribute, value in list(vars(module).items()):
            # A submodule that was imported since is no patch.
            if isinstance(value, types.ModuleType):
                continue
            seen[name, attribute] = id(value)
            if isinstance(value, type) and value.__module__ == name:
                for member, inner in list(vars(value).items()):
                    # abc keeps a registry of subclasses, which an import fills.
                    if not member.startswith("_abc_"):
                        seen[name, f"{attribute}.{member}"] = id(inner)
    return seen


def _state(open_files: Collection[int]) -> dict[str, object]:
    """open_files: descriptors that were open at first."""
    return {
        "files that are open": [_file(number) for number in open_files],
        "the environment": dict(os.environ),
        "sys.path": list(sys.path),
        "a signal handler": [signal.getsignal(n) for n in sorted(signal.valid_signals())],
        "the working directory": os.getcwd(),
        "handlers of the root logger": list(logging.getLogger().handlers),
        "the level of the root logger": logging.getLogger().level,
        "a switch that turns logging off": logging.root.manager.disable,
        "the level of a logger of the core": logging.getLogger("framework").level,
        "sys.excepthook": sys.excepthook,
        "sys.unraisablehook": sys.unraisablehook,
        "sys.displayhook": sys.displayhook,
        "threading.excepthook": threading.excepthook,
        "sys.stdout": sys.stdout,
        "sys.meta_path": list(sys.meta_path),
        "the recursion limit": sys.getrecursionlimit(),
        "the switch interval": sys.getswitchinterval(),
        "the garbage collector": (gc.isenabled(), gc.get_threshold()),
        "the locale": locale.setlocale(locale.LC_ALL),
        "the umask": _umask(),
        "filters for all warnings": [f for f in warnings.filters if _is_for_all(f)],
        "builtins": set(vars(builtins)),
        "the default timeout of sockets": _of_module("_socket", "getdefaulttimeout"),
        "the start method of multiprocessing": _of_module(
            "multiprocessing", "get_start_method", allow_none=True
        ),
        "the random state": random.getstate(),
    }


def _open_files() -> list[int]:
    """Descriptors; the standard ones alone where the system does not list all."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        numbers = [0, 1, 2]
    return [number for number in numbers if _file(number) is not None]


def _file(number: int) -> object:
    """Which file a descriptor is of; None where it is closed."""
    try:
        found = os.fstat(number)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _of_module(name: str, function: str, **arguments: object) -> object:
    """What a function says; None while nobody has imported its module."""
    module = sys.modules.get(name)
    return None if module is None else getattr(module, function)(**arguments)


def _umask() -> int:
    now = os.umask(0o077)
    os.umask(now)
    return now


def _is_for_all(found: tuple[Any, ...]) -> bool:
    """A filter that others add for a warning of their own is no harm."""
    _, message, category, module, _ = found
    return message is None and module is None and category in (Warning, Exception)


def _differences(before: dict[Any, object], after: dict[Any, object]) -> Iterator[Any]:
    return (key for key, value in before.items() if after.get(key) != value)


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
    _core_modules()
    from framework.testing.conformance.probe import HEAVY

    open_files = _open_files()
    ears, state, names = _Ears(), _state(open_files), _attributes()
    # What a .pth file of the environment loads at every start is no doing of the plugin.
    there = set(sys.modules)
    threads = set(threading.enumerate())
    error = ""
    ends = _at_exit(value.partition(":")[0].partition(".")[0].strip())
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
    after = _attributes()
    findings = {
        "error": error,
        "seconds": seconds,
        "heavy": [name for name in HEAVY if name in sys.modules and name not in there],
        "network": ears.network,
        "processes": ears.processes,
        "threads": [t.name for t in threading.enumerate() if t not in threads],
        "changes": [*_differences(state, _state(open_files)), *ends],
        "patches": [".".join(key) for key in _differences(dict(names), dict(after))],
    }
    _last_words(lambda: _write(answer, findings))


def _write(answer: str, findings: dict[str, object]) -> None:
    file = Path(answer)
    part = file.with_suffix(".part")
    part.write_text(dumps(findings))
    part.replace(file)


if __name__ == "__main__":
    main(*sys.argv[1:5])
