"""`framework bench tune`: settings of a server that keep objectives under the highest load."""

from __future__ import annotations

import secrets
import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from framework.cli import options
from framework.cli.context import root_options
from framework.errors import ConfigError
from framework_commands.bench import serve_flags as flags
from framework_commands.bench.search import (
    Setting,
    Trial,
    best_of,
    parse_values,
    search_rate,
    settings_of,
)

if TYPE_CHECKING:
    from framework.cli.context import RootOptions
    from framework_commands.bench.run import Load

MOST_SETTINGS = 64


def tune(
    context: typer.Context,
    model: options.Model = None,
    goodput: flags.Goodput = None,
    more_goodput: flags.MoreGoodput = None,
    attain: Annotated[
        float, typer.Option(help="Part of the requests that must be good.", min=0.01, max=1.0)
    ] = 0.95,
    max_num_seqs: Annotated[str, typer.Option(metavar="N[,N...]")] = "16,64,256",
    max_num_batched_tokens: Annotated[str, typer.Option(metavar="N[,N...]")] = "512,2048",
    rounds: Annotated[
        int, typer.Option(help="Rates that are tried of a setting, at most.", min=1, max=20)
    ] = 5,
    num_prompts: flags.NumPrompts = 100,
    dataset_name: flags.Name = flags.DataSetName.RANDOM,
    dataset_path: flags.DataPath = None,
    input_len: flags.InputLen = 1024,
    output_len: flags.OutputLen = None,
    range_ratio: flags.Spread = 0.0,
    prefix_len: flags.PrefixLen = 0,
    num_prefixes: flags.NumPrefixes = 10,
    suffix_len: flags.SuffixLen = 256,
    sharegpt_max_len: flags.Longest = 2048,
    burstiness: flags.Burstiness = 1.0,
    ignore_eos: flags.IgnoreEos = False,
    seed: flags.Seed = 0,
    start_timeout: Annotated[
        float, typer.Option(help="Seconds until a server listens.", min=1.0)
    ] = 900.0,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the best settings go, as YAML.")
    ] = Path("tuned.yaml"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all trials.")] = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Find the settings with which a server keeps the objectives of --goodput at the highest
    rate of requests. Starts `framework serve` for each setting, and ends it whatever happens.

    At most (settings) x (rounds + 1) runs of --num-prompts requests. The file that it writes is
    for `framework serve --config`: that of --config with the settings that were found.
    """
    from framework.bench.report import check_folder

    load = flags.make_load(context.params)
    if not load.objectives:
        raise ConfigError("there is no objective", expected="--goodput NAME:MILLISECONDS...")
    found = _settings(max_num_seqs, max_num_batched_tokens)
    engine = {"model": model, "dtype": dtype, "max_model_len": max_model_len}
    base = _base(config, engine, settings)
    for file in (output, *([json_file] if json_file else [])):
        check_folder(file)
    words = [*_root_words(root_options(context)), "serve", *_words(engine, config, settings)]
    with _ended_by_sigterm():
        trials = _try_all(words, found, load, attain, rounds, start_timeout, ignore_eos)
    _tell(trials, load.objectives, attain, base, output, json_file)


def _settings(seqs: str, tokens: str) -> list[dict[str, int]]:
    axes = {
        "max_num_seqs": parse_values(seqs, "--max-num-seqs"),
        "max_num_batched_tokens": parse_values(tokens, "--max-num-batched-tokens"),
    }
    found = settings_of(axes)
    if len(found) > MOST_SETTINGS:
        most = f"at most {MOST_SETTINGS}"
        raise ConfigError("too many settings", expected=most, found=len(found))
    return found


def _tell(
    trials: Sequence[Trial],
    objectives: Mapping[str, float],
    attain: float,
    base: Mapping[str, Any],
    output: Path,
    json_file: Path | None,
) -> None:
    """Print and write what was found; status 1 if nothing was."""
    from framework.bench.report import write_json

    _show(trials, objectives)
    if json_file is not None:
        write_json(json_file, [_plain(trial) for trial in trials])
    best = best_of(trials)
    if best is None:
        print(f"no setting keeps the objectives for {attain:.0%} of the requests", file=sys.stderr)
        raise typer.Exit(1)
    _write(output, base, best, objectives)
    print(f"best: {_named(best.setting)}, {best.sustained:.2f} requests/s; written to {output}")


def _try_all(
    words: Sequence[str],
    settings: Sequence[Setting],
    load: Load,
    attain: float,
    rounds: int,
    seconds: float,
    ignore_eos: bool,
) -> list[Trial]:
    from framework_commands.api.address import Address
    from framework_commands.bench.run import run_rates
    from framework_commands.bench.target import Target, find_target
    from framework_commands.server_process import ServerProcess

    trials: list[Trial] = []
    for number, setting in enumerate(settings, start=1):
        flags = [w for name, value in setting.items() for w in ("--set", f"{name}={value}")]
        key = secrets.token_hex(16)  # nobody else's requests are measured
        with ServerProcess(
            [*words, *flags, "--host", "127.0.0.1", "--port", "0"],
            environment={"FRAMEWORK_API_KEY": key},
        ) as server:
            _say(f"setting {number} of {len(settings)}: {_named(setting)}")
            url = server.start(seconds)
            _say(f"  process {server.pid} listens on {url}")
            target: Target = find_target(Address.parse(url, key), None, ignore_eos=ignore_eos)

            def measure(rate: float, target: Target = target) -> Mapping[str, Any]:
                [(result, _)] = run_rates(target, load, [rate], lambda text: _say(f"  {text}"))
                return result

            for trial in search_rate(setting, measure, attain, rounds):
                good = f"{trial.attained:.1%} good, {trial.served:.2f} requests/s"
                _say(f"    {'fine' if trial.fine else 'too much'}: {good}")
                trials.append(trial)
    return trials


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _named(setting: Setting) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items())


def _root_words(root: RootOptions) -> list[str]:
    """The root options as they were typed."""
    words = [f"--plugin={key}={value}" for key, value in root.plugins.items()]
    words += [f"--plugin-option={key}={value}" for key, value in root.options.items()]
    words += ["--no-plugins"] * root.no_plugins + ["--frozen"] * root.frozen
    return [*words, *([f"--lock-file={root.lock_file}"] if root.lock_file else [])]


def _words(
    engine: Mapping[str, object], config: Path | None, settings: Sequence[str] | None
) -> list[str]:
    """Flags of `framework serve`."""
    given = {**engine, "config": config}
    words = [
        f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None
    ]
    return words + [f"--set={text}" for text in settings or []]


def _base(
    config: Path | None, engine: Mapping[str, object], settings: Sequence[str] | None
) -> dict[str, Any]:
    """What --config and the flags say, as a file would; secrets are left out.  Raises
    ConfigError, as the server would."""
    from framework.cli.context import parse_settings
    from framework.config.layers import OWNER
    from framework.config.resolve import holds_secrets, read_yaml, resolve

    given = {name: value for name, value in engine.items() if value is not None}
    given |= parse_settings(settings or [])
    resolve(given, defaults={"model": options.DEFAULT_MODEL}, file=config, word="flag")
    text = config.read_text("utf-8") if config is not None else ""
    base: dict[str, Any] = read_yaml(text, f"file {config}") or {}
    for name, value in given.items():
        section = OWNER[name]
        if not holds_secrets(section, name):
            base[section] = {**(base.get(section) or {}), name: value}
    return base


def _write(
    path: Path, base: Mapping[str, Any], best: Trial, objectives: Mapping[str, float]
) -> None:
    import yaml

    held = ", ".join(f"{name} <= {value:g} ms" for name, value in objectives.items())
    head = (
        f"# By `framework bench tune`: {best.attained:.1%} of the requests keep {held}\n"
        f"# at {best.sustained:.2f} requests per second.\n"
    )
    scheduler = {**(base.get("scheduler") or {}), **best.setting}
    text = yaml.safe_dump({**base, "scheduler": scheduler}, sort_keys=False)
    try:
        path.write_text(head + text, "utf-8")
    except OSError as error:
        raise ConfigError(f"the settings cannot be written: {error}", found=str(path)) from error


def _plain(trial: Trial) -> dict[str, Any]:
    rate = "inf" if trial.rate == float("inf") else trial.rate
    return {
        "setting": dict(trial.setting),
        "request_rate": rate,
        "fine": trial.fine,
        "sustained": trial.sustained,
        "result": dict(trial.result),
    }


def _show(trials: Sequence[Trial], objectives: Mapping[str, float]) -> None:
    """A line for each trial."""
    head = ["max_num_seqs", "max_num_batched_tokens", "rate", "served", "good"]
    head += [f"p99 {name}" for name in objectives]
    print("  ".join(head))
    for trial in trials:
        p99 = [trial.result.get(f"p99_{name}_ms") for name in objectives]
        cells = [
            *map(str, trial.setting.values()),
            f"{trial.rate:.2f}",
            f"{trial.served:.2f}",
            f"{trial.attained:.1%}",
            *("-" if value is None else f"{value:.1f}" for value in p99),
        ]
        wide = zip(cells, head, strict=True)
        print("  ".join(cell.rjust(len(title)) for cell, title in wide))


@contextmanager
def _ended_by_sigterm() -> Generator[None, None, None]:
    """Within, SIGTERM leaves through every `finally`, so that no server stays behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
