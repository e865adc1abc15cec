"""`framework bench case | step | start | compare`: a model, on the work that peers get."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from framework.cli import bench_options, options
from framework.cli.context import DEFAULT_MODEL, resolved_of
from framework.cli.printing import show_table
from framework.errors import ConfigError


def case(
    context: typer.Context,
    cases: Annotated[
        list[str], typer.Argument(metavar="CASE...", help="REQUESTSxPROMPT+OUTPUT: 16x128+64.")
    ],
    model: options.Model = None,
    level: options.Level = None,
    shared_prefix: Annotated[
        int, typer.Option(help="Tokens that all prompts begin with.", min=0)
    ] = 0,
    warm: Annotated[
        bool, typer.Option("--warm", help="An earlier request has computed these.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Of which the best counts.", min=1)] = 2,
    json_file: bench_options.Output = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Measure a model in this process on random prompts that come at once: tokens per second,
    time to first token, and tokens per second from there on."""
    from framework.bench.cases import as_json, measure, table
    from framework.bench.report import write_json
    from framework.bench.workload import Case

    _check(json_file)
    work = [Case.parse(text, shared=shared_prefix, warm=warm) for text in cases]
    flags = {"model": model, "optimization_level": level}
    with options.make_llm(context, flags, config, settings) as llm:
        found = [measure(llm, one, rounds) for one in work]
    show_table(table(found))
    if json_file is not None:
        write_json(json_file, as_json(found))


def step(
    context: typer.Context,
    model: options.Model = None,
    level: options.Level = None,
    requests: Annotated[int, typer.Option(help="That decode side by side.", min=1)] = 1,
    length: Annotated[
        int, typer.Option("--context", help="Tokens of each before them.", min=1)
    ] = 128,
    steps: Annotated[int, typer.Option(help="Steps to time.", min=1)] = 32,
    profile: Annotated[
        bool, typer.Option("--profile", help="Operators and roofline, from some more steps.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw phases and operators (.png, .svg, .pdf).")
    ] = None,
    json_file: bench_options.Output = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Where the time of a decode step goes."""
    from framework.bench.plot import check_plot
    from framework.bench.report import write_json
    from framework.bench.step import OPTIONS, as_json, measure
    from framework.bench.step_report import operator_table, phase_table, plot_step, roofline_table

    _check(json_file)
    if plot is not None:
        check_plot(plot)
    flags = {"model": model, "optimization_level": level, **OPTIONS}
    resolved = resolved_of(context, flags, config, settings)
    figures, found = measure(resolved, requests, length, steps, profile=profile)
    show_table(phase_table(figures))
    if found is not None:
        show_table(operator_table(found))
        roofline = roofline_table(figures, found)
        if roofline is not None:
            show_table(roofline)
    if plot is not None:
        plot_step(plot, figures, found)
    if json_file is not None:
        write_json(json_file, as_json(figures, found))


def start(
    context: typer.Context,
    model: options.Model = None,
    json_file: bench_options.Output = None,
    settings: options.Settings = None,
) -> None:
    """Measure a fresh process from its start to the first token, and its memory at most."""
    from framework.bench.report import write_json
    from framework.bench.start import measure
    from framework.cli.context import parse_settings

    _check(json_file)
    given = {"model": model or DEFAULT_MODEL, **parse_settings(settings or [])}
    found = measure(given)
    print(f"first token after {found['seconds']:.2f} s, peak memory {found['peak_mib']:.0f} MiB")
    print(", ".join(f"{name} {spent:.2f} s" for name, spent in found["phases"].items()))
    print(f"{found['modules']} modules, among them: {', '.join(found['heavy']) or 'none large'}")
    if json_file is not None:
        write_json(json_file, found)


def compare(
    model: options.Model = None,
    peers: Annotated[
        Path | None,
        typer.Option(
            help="A folder with the environments of peers (vllm/, hf/), model/ and gguf/; ours "
            "runs on that model."
        ),
    ] = None,
    peer_script: Annotated[
        str | None,
        typer.Option(
            help="What runs them: PROGRAM FOLDER REQUESTS PROMPT OUTPUT, or FOLDER start; prints "
            "JSON lines.",
            show_default="one of this project",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Medians over so many.", min=1)] = 3,
    task: Annotated[list[str] | None, typer.Option(help="Only those whose names begin so.")] = None,
    json_file: bench_options.Output = None,
) -> None:
    """Compare a model's speed with that of other engines, in the same run and in turn."""
    from framework.bench.compare import compare as run
    from framework.bench.compare import peers_of, tasks
    from framework.bench.compare_report import as_json, goal_table, table
    from framework.bench.peers import PROGRAM
    from framework.bench.report import write_json

    _check(json_file)
    own, gguf = _models(model, peers)
    wanted = tuple(task or ("",))
    work = [one for one in tasks(own, gguf) if one.name.startswith(wanted)]
    if not work:
        names = ", ".join(one.name for one in tasks(own, gguf))
        raise ConfigError("--task names none", expected=f"the start of one of {names}", found=task)
    program = PROGRAM if peer_script is None else tuple(shlex.split(peer_script))
    others = None if peers is None else peers_of(peers, program)
    samples = run(work, rounds, others, lambda text: print(text, file=sys.stderr, flush=True))
    show_table(table(samples))
    show_table(goal_table(samples))
    for (name, subject), reason in samples.missing.items():
        print(f"{subject} was left out of {name}: {reason}", file=sys.stderr)
    if json_file is not None:
        write_json(json_file, as_json(samples, {"model": own, "rounds": rounds}))


def _models(model: str | None, peers: Path | None) -> tuple[str, str | None]:
    """(ours, the same as GGUF if there is one)."""
    folder = None if peers is None else peers / "model"
    gguf = None if peers is None else peers / "gguf" / "F16.gguf"
    own = model or (str(folder) if folder is not None and folder.is_dir() else DEFAULT_MODEL)
    return own, str(gguf) if gguf is not None and gguf.is_file() else None


def _check(json_file: Path | None) -> None:
    """Find out before the work whether its result can be written."""
    from framework.bench.report import check_folder

    if json_file is not None:
        check_folder(json_file)
