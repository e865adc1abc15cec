"""`framework bench`: what a policy would bring, and what scheduling costs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli import bench_model
from framework.cli import bench_options as options
from framework.cli.commands import CommandGroup
from framework.cli.context import registry_of, root_options
from framework.cli.printing import show_table
from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.bench.report import PolicyRun
    from framework.bench.simulate import SimulationConfig
    from framework.bench.trace import Trace
    from framework.contracts.scheduling_policy import SchedulingPolicy

app = typer.Typer(
    cls=CommandGroup, help="Benchmarks of scheduling, engine and server.", no_args_is_help=True
)
for _command in (bench_model.case, bench_model.step, bench_model.start, bench_model.compare):
    app.command()(_command)


@app.command()
def schedule(
    context: typer.Context,
    arrivals: options.Arrivals = None,
    rate: options.Rate = 10.0,
    num_requests: options.NumRequests = 1000,
    burstiness: options.Burstiness = 1.0,
    tenants: options.Tenants = "default",
    flood: options.Flood = None,
    prompt_len: options.Lengths = None,
    output_len: options.Lengths = None,
    policy: options.Policies = "fcfs",
    max_num_seqs: options.MaxNumSeqs = 256,
    max_num_batched_tokens: options.MaxNumBatchedTokens = 2048,
    num_pages: options.NumPages = 32_768,
    page_size: options.PageSize = 16,
    loop_depth: options.LoopDepth = 1,
    cost: options.Cost = "",
    slo_ttft: options.SloTtft = None,
    slo_itl: options.SloItl = None,
    seed: options.Seed = 0,
    json_file: options.Output = None,
    plot: options.Plot = None,
) -> None:
    """Play a trace of requests through the scheduler on a virtual clock: what would users of
    each policy see?  Nothing is computed; a step takes what --cost says."""
    from framework.bench.arguments import make_trace
    from framework.bench.cost import StepCost
    from framework.bench.measure import Objective
    from framework.bench.simulate import SimulationConfig

    config = SimulationConfig(
        cost=StepCost.parse(cost),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        num_pages=num_pages,
        page_size=page_size,
        loop_depth=loop_depth,
    )
    objective = Objective(ttft=slo_ttft, itl=slo_itl)
    _check_files(arrivals, json_file, plot)
    made = {
        "rate": rate,
        "num_requests": num_requests,
        "burstiness": burstiness,
        "tenants": tenants,
        "flood": flood or [],
        "prompt_len": prompt_len or ["512"],
        "output_len": output_len or ["128"],
        "seed": seed,
    }
    trace, source = make_trace(arrivals, made=made, given=_given(context))
    policies = _policies(context, policy)
    runs = [_play(name, instance, trace, config, objective) for name, instance in policies]
    settings = {**source, **asdict(config), "slo": asdict(objective), "policy": policy}
    _tell(context, trace, runs, settings, json_file, plot)


def _check_files(arrivals: Path | None, json_file: Path | None, plot: Path | None) -> None:
    """Find out before the work whether its results can be written, and over nothing else."""
    from framework.bench.plot import check_plot
    from framework.bench.report import check_folder

    if json_file is not None:
        check_folder(json_file)
    if plot is not None:
        check_plot(plot)
    files = {"--arrivals": arrivals, "--json": json_file, "--plot": plot}
    flag_of: dict[Path, str] = {}
    for flag, file in files.items():
        if file is not None and flag_of.setdefault(file.resolve(), flag) != flag:
            raise ConfigError(
                f"{flag} would overwrite the file of {flag_of[file.resolve()]}",
                expected="a file of its own",
                found=str(file),
            )


def _tell(
    context: typer.Context,
    trace: Trace,
    runs: Sequence[PolicyRun],
    settings: Mapping[str, Any],
    json_file: Path | None,
    plot: Path | None,
) -> None:
    from framework.bench.plot import plot as draw
    from framework.bench.report import as_json, table, write_json

    show_table(table(runs))
    if json_file is not None:
        root = root_options(context)
        # Names alone: a value may be a secret, and a file of results is passed on.
        plugins = {"plugins": root.plugins, "plugin_options": sorted(root.options)}
        write_json(json_file, as_json(runs, {**settings, **plugins}))
    if plot is not None:
        draw(plot, trace, runs)


def _given(context: typer.Context) -> set[str]:
    """Names of the options that the command line holds."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def _policies(context: typer.Context, text: str) -> list[tuple[str, SchedulingPolicy]]:
    """New instances, by name; all are made before the first runs, to find faults early."""
    from framework.contracts.scheduling_policy import SchedulingPolicy

    registry = registry_of(context)
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise ConfigError("--policy is invalid", expected="NAME[,NAME...], each once", found=text)
    made = []
    for name in names:
        instance = registry.create("scheduling_policy", name, named=True)
        assert isinstance(instance, SchedulingPolicy)
        made.append((name, instance))
    return made


def _play(
    name: str,
    policy: SchedulingPolicy,
    trace: Trace,
    config: SimulationConfig,
    objective: Any,
) -> PolicyRun:
    from framework.bench.measure import figures, latencies
    from framework.bench.report import PolicyRun
    from framework.bench.simulate import simulate

    start = time.perf_counter()
    try:
        timeline = simulate(trace, policy, config)
    except MemoryError as error:
        raise ConfigError(
            "the simulation does not fit into memory",
            mend="lower --max-num-seqs, --num-pages or the lengths",
        ) from error
    wall = time.perf_counter() - start
    found = latencies(trace, timeline)
    return PolicyRun(
        policy=name,
        timeline=timeline,
        latencies=found,
        figures=figures(trace, timeline, found, objective),
        wall_seconds=wall,
    )


@app.command()
def core(
    requests: Annotated[
        str, typer.Option(metavar="N[,N...]", help="Requests that run together.")
    ] = "1,16,64,256,1024",
    steps: Annotated[int, typer.Option(help="Decode steps to time.", min=1, max=300)] = 200,
    peers: Annotated[
        Path | None,
        typer.Option(help="A folder with vllm/bin/python and model/: vLLM, side by side."),
    ] = None,
    waiting: Annotated[
        int, typer.Option(help="Further requests, which wait for a slot.", min=0, max=10_000)
    ] = 0,
    json_file: options.Output = None,
) -> None:
    """Measure what the engine core itself costs per step and per request, in microseconds."""
    from framework.bench.core import as_json, measure, run_peer, table
    from framework.bench.report import check_folder, write_json

    if json_file is not None:
        check_folder(json_file)
    counts = [_count(text) for text in requests.split(",")]
    ours = [measure(count, steps=steps, waiting=waiting) for count in counts]
    theirs = run_peer(peers, counts, steps=steps) if peers else []
    show_table(table(ours, theirs))
    if json_file is not None:
        write_json(json_file, as_json(ours, theirs))


def _count(text: str) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= 2**14:
        raise ConfigError(
            "--requests is invalid", expected=f"integers in [1, {2**14}], by commas", found=text
        )
    return int(text)
