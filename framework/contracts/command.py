"""Kind `command`: a sub-command of `framework`, such as `framework collect-env`.

Help and name come from the manifest, so that `framework --help` shows them without an import:

    [plugin.facts]
    help = "Shows what the machine has."      # one line
    path = "show machine"                     # what users type; default: the plugin's name

Words of the path are of small letters, digits and hyphens; with several the first are groups, which
plugins and the core share (`bench`). What the core has itself, no plugin can claim; a path that two
plugins claim is an error when it is used.

The plugin is imported when its command is called, and only then. Whoever types a command has named
it, so that third parties need no further permission.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from framework.contracts.base import Contract

if TYPE_CHECKING:
    from pathlib import Path

    from framework.cli.context import RootOptions
    from framework.config.resolve import Resolved
    from framework.plugins.registry import PluginRegistry


class Call(Protocol):
    """One use of a command."""

    @property
    def program(self) -> str:
        """What was typed to get here, such as "framework bench serve"; for lines of usage."""
        ...

    @property
    def arguments(self) -> tuple[str, ...]:
        """What was typed behind it, as it was typed."""
        ...

    @property
    def root(self) -> RootOptions:
        """The options before the command."""
        ...

    def resolve(
        self,
        flags: Mapping[str, object] | None = None,
        config: Path | None = None,
        settings: Sequence[str] = (),
        plugin_options: Mapping[str, object] | None = None,
    ) -> Resolved:
        """The engine's configuration, as for every other command: defaults, the file `config`,
        the environment, root options, `settings` ("FIELD=VALUE"), `flags` (field -> value; None
        is not given) and `plugin_options` ("kind.name.key" -> value).  Raises ConfigError."""
        ...

    def registry(self) -> PluginRegistry:
        """The plugins that may be used.  Raises ConfigError."""
        ...


class Command(Contract):
    """One sub-command."""

    kind: ClassVar[str] = "command"

    @abstractmethod
    def run(self, call: Call) -> int:
        """Do it; the exit status: 0 it is done, 1 it failed, 2 it was called wrongly.

        `--help` as the only argument prints the usage to stdout and is status 0.  An unknown flag
        is told on stderr and is status 2; then nothing was done.  What goes to stdout is the
        answer and nothing else.  It may be called again, and leaves working directory,
        environment, signal handlers and streams of the process as they were.

        Raises errors of `framework.errors`, which become one message on stderr and status 1;
        KeyboardInterrupt becomes status 130.
        """
