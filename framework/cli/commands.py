"""Commands that plugins bring: listed from their manifests, imported when called."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from framework.cli.context import RootOptions, registry_of, resolved_with, root_options
from framework.cli.failures import JsonFailures
from framework.cli.misplaced import tell_place
from framework.errors import ConfigError, FrameworkError, PluginError
from framework.plugins.lookup import unusable
from framework.plugins.near import did_you_mean
from framework.shown import in_a_line

if TYPE_CHECKING:
    from pathlib import Path

    from framework.config.resolve import Resolved
    from framework.contracts.command import Call, Command
    from framework.plugins.records import Record
    from framework.plugins.registry import PluginRegistry

KIND = "command"
WORD = re.compile(r"[a-z][a-z0-9_-]*\Z")
MOST_WORDS = 3
Path_ = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """See `framework.contracts.command.Call`."""

    program: str
    arguments: tuple[str, ...]
    root: RootOptions

    def resolve(
        self,
        flags: Mapping[str, object] | None = None,
        config: Path | None = None,
        settings: Sequence[str] = (),
        plugin_options: Mapping[str, object] | None = None,
    ) -> Resolved:
        """The configuration; see `resolved_with`."""
        return resolved_with(self.root, flags, config, settings, plugin_options)

    def registry(self) -> PluginRegistry:
        """The plugins that environment and root options describe."""
        from framework.config.choices import open_registry

        return open_registry(self.resolve().config)


def run_typer(function: Callable[..., Any], call: Call) -> int:
    """Run a function with typer's annotations as the command that `call` means; its exit status.

    A `typer.Context` that it takes leads to the root options, as in the core's own commands.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(cls=_Command)(function)
    command = typer.main.get_command(app)
    try:
        command.main(args=list(call.arguments), prog_name=call.program, obj=call.root)
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            raise
        return end.code or 0
    return 0


class _Command(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            rest: list[str] = super().parse_args(ctx, args)
        except Exception as error:
            tell_place(error)
            raise
        return rest


def path_of(record: Record) -> Path_:
    """The words that users type for a command; () if its manifest says some that nobody could."""
    facts = record.facts.facts if record.facts else {}
    words = str(facts.get("path", record.name)).split()
    fit = 0 < len(words) <= MOST_WORDS and all(WORD.match(word) for word in words)
    return tuple(words) if fit else ()


def help_of(record: Record) -> str:
    """What its manifest says of a command; else who brings it."""
    facts = record.facts.facts if record.facts else {}
    return in_a_line(str(facts.get("help") or f"({record.key})"), 300)


@dataclass(frozen=True, slots=True)
class Found:
    """registry: None where the plugins cannot be known.  paths: path -> those who claim it, in
    order of the words.  unusable: those that are denied, or broken."""

    registry: PluginRegistry | None
    paths: Mapping[Path_, Sequence[Record]]
    unusable: Mapping[Path_, Record]


def find_commands(registry: PluginRegistry, core: TyperGroup) -> Found:
    """All commands of plugins.  Imports nothing; tells on stderr what is left out, and why.

    core: the group of the core's own commands, which nobody can claim.
    """
    paths: dict[Path_, list[Record]] = {}
    unusable: dict[Path_, Record] = {}
    for record in registry.records(KIND):
        path = path_of(record)
        if not record.usable:
            unusable[path] = record
        elif not path or is_of_core(core, path):
            reason = "the path in its manifest cannot be typed" if not path else "the core has it"
            what = " ".join(path) or record.name
            print(f"warning: {record.key}: no command {what!r}: {reason}", file=sys.stderr)
        else:
            paths.setdefault(path, []).append(record)
    return Found(registry, dict(sorted(paths.items())), unusable)


def is_of_core(core: TyperGroup, path: Path_) -> bool:
    """Whether the path leads to a command of the core, to a group of it, or through a command."""
    place: Any = core
    for word in path:
        place = place.commands.get(word) if hasattr(place, "commands") else place
        if place is None:
            return False
    return True


class CommandGroup(JsonFailures):
    """The core's commands, and those of plugins that lie in this group."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The core's own, in their order; then those of plugins."""
        return [*self.commands, *self._of_plugins(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The core's own first: a start of one of them looks for no plugin."""
        own = self.commands.get(cmd_name)
        return own if own is not None else self._of_plugins(ctx).get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer does, with near matches among the commands of plugins too.

        Raises PluginError for a command that is denied or broken, and ConfigError where no
        plugin brings any, with the line that mends it.
        """
        name = args[0]
        command = self.get_command(ctx, name)
        if command is not None:
            return name, command, args[1:]
        found = self._found(ctx)
        if (*words_of(ctx), name) in found.unusable:
            raise unusable(found.unusable[(*words_of(ctx), name)])
        if not found.paths:
            from framework.engine.plugged import INSTALL

            raise ConfigError(
                f"there is no command {name!r}: no installed plugin brings any",
                found=name,
                mend=INSTALL,
            )
        known = self.list_commands(ctx)
        return ctx.fail(f"No such command {name!r}.{did_you_mean(name, known)}")

    def _found(self, ctx: Any) -> Found:
        """All commands of plugins, looked for once in a context."""
        found: Found | None = ctx.meta.get(__name__)
        if found is None:
            try:
                found = find_commands(_registry(ctx), ctx.find_root().command)
            except FrameworkError as error:
                print(f"error: commands of plugins are not known: {error}", file=sys.stderr)
                found = Found(None, {}, {})
            ctx.meta[__name__] = found
        return found

    def _of_plugins(self, ctx: Any) -> dict[str, Any]:
        """Name -> command of what lies right below this group and is not the core's."""
        place = words_of(ctx)
        made: dict[str, Any] = {}
        found = self._found(ctx)
        for path, records in found.paths.items():
            if path[: len(place)] != place or len(path) == len(place):
                continue
            name = path[len(place)]
            if len(path) > len(place) + 1:
                if name not in self.commands:
                    made.setdefault(name, _group(name))
            elif found.registry is not None:
                made[name] = PluginCommand(name, found.registry, records)
        return made


def _registry(context: Any) -> PluginRegistry:
    """As the configuration says; where that cannot be read, as root options and lists of the
    environment say: a command that tells what is wrong must be found even then."""
    try:
        return registry_of(context)
    except ConfigError as error:
        from framework.plugins.policy import Policy
        from framework.plugins.registry import PluginRegistry

        print(f"warning: {error.message}", file=sys.stderr)
        root = root_options(context)
        policy = Policy.from_env(os.environ, no_plugins=root.no_plugins)
        return PluginRegistry(policy=policy, ad_hoc=root.plugins)


def _group(name: str) -> CommandGroup:
    """A group that only plugins have commands in."""
    return CommandGroup(name=name, help="Commands of plugins.", no_args_is_help=True)


def words_of(context: Any) -> Path_:
    """The words behind the name of the program that led to this context."""
    words: list[str] = []
    while context.parent is not None:
        words.insert(0, str(context.info_name))
        context = context.parent
    return tuple(words)


class PluginCommand(TyperCommand):
    """Stands for a command of a plugin until it is called; takes whatever arguments it gets."""

    def __init__(self, name: str, registry: PluginRegistry, records: Sequence[Record]) -> None:
        text = help_of(records[0])
        super().__init__(name, help=text, short_help=text, add_help_option=False)
        self._registry, self._records = registry, records

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """They are the plugin's to understand."""
        ctx.args = list(args)
        return args

    def invoke(self, ctx: Any) -> Any:
        """Load the plugin and run it.  Raises PluginError if several claim its name, and where
        only plugins of a lock file may run and it is none of them."""
        if len(self._records) > 1:
            raise _claimed(" ".join(words_of(ctx)), self._records)
        (record,) = self._records
        root = root_options(ctx)
        call = CommandCall(program=ctx.command_path, arguments=tuple(ctx.args), root=root)
        _check_frozen(call, self._registry)
        command = cast("Command", self._registry.create_record(record))
        raise typer.Exit(command.run(call))


def _check_frozen(call: CommandCall, registry: PluginRegistry) -> None:
    """Whoever froze the plugins froze these as well.  A configuration that cannot be read, and did
    not have to be, is the command's to tell."""
    from framework.config.choices import check_frozen
    from framework.config.sections import ENV_ALIASES
    from framework.plugins.policy import is_on

    try:
        config = call.resolve().config
    except ConfigError:
        if call.root.frozen or any(is_on(os.environ.get(name, "")) for name in ENV_ALIASES):
            raise
    else:
        check_frozen(config, registry)


def _claimed(path: str, records: Sequence[Record]) -> PluginError:
    keys = [record.key for record in records]
    return PluginError(
        f"{len(keys)} plugins claim the command {path!r}",
        plugin=keys[0],
        distribution=records[0].distribution,
        expected="one of them",
        found=", ".join(keys),
        mend=f"deny the others, as with FRAMEWORK_PLUGINS_DENY={keys[-1]}",
    )
