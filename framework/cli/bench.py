"""`framework bench`: what a policy would bring, and what scheduling costs."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli.context import registry_of, root_options
from framework.cli.plugins import show_table
from framework.errors import ConfigError

if TYPE_CHECKING:
    from framework.bench.report import PolicyRun
    from framework.bench.simulate import SimulationConfig
    from framework.bench.trace import Trace
    from framework.contracts.scheduling_policy import SchedulingPolicy

app = typer.Typer(help="Benchmarks that need no model.", no_args_is_help=True)

LENGTH_HELP = "TOKENS or a distribution (uniform:LOW:HIGH, normal:MEAN:DEVIATION, lognormal:\
MEDIAN:SIGMA, exponential:MEAN); TENANT=... for one tenant."
MOST_PAGES = 2**22

Output = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]


@app.command()
def schedule(
    context: typer.Context,
    arrivals: Annotated[
        Path | None,
        typer.Option(
            help='A file of lines {"arrival": SECONDS, "prompt": TOKENS, "output": TOKENS, '
            '"tenant": NAME, "priority": INTEGER}; the last two may be left out.'
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Requests per second; inf: all at once.", min=1e-6)
    ] = 10.0,
    num_requests: Annotated[
        int, typer.Option(help="Requests, floods not counted.", min=0, max=2**22)
    ] = 1000,
    burstiness: Annotated[
        float, typer.Option(help="1: Poisson; less: bursts; more: steadier.", min=1e-3, max=1e6)
    ] = 1.0,
    tenants: Annotated[
        str, typer.Option(metavar="NAME[:SHARE],...", help="Tenants and their parts of the rate.")
    ] = "default",
    flood: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT:COUNT@SECONDS", help="Requests that come all at once."),
    ] = None,
    prompt_len: Annotated[list[str] | None, typer.Option(help=LENGTH_HELP)] = None,
    output_len: Annotated[list[str] | None, typer.Option(help=LENGTH_HELP)] = None,
    policy: Annotated[
        str, typer.Option(metavar="NAME[,NAME...]", help="Scheduling policies to compare.")
    ] = "fcfs",
    max_num_seqs: Annotated[int, typer.Option(min=1, max=2**16)] = 256,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, max=2**30)] = 2048,
    num_pages: Annotated[int, typer.Option(help="Cache pages.", min=2, max=MOST_PAGES)] = 32_768,
    page_size: Annotated[int, typer.Option(help="Tokens per page.", min=1, max=2**16)] = 16,
    loop_depth: Annotated[int, typer.Option(help="Steps in flight.", min=1, max=2)] = 1,
    cost: Annotated[
        str, typer.Option(help="base_us=..., token_us=..., row_us=..., context_us=... of a step.")
    ] = "",
    slo_ttft: Annotated[
        float | None, typer.Option(help="Seconds to the first token, at most.", min=0.0)
    ] = None,
    slo_itl: Annotated[
        float | None,
        typer.Option(help="Seconds between tokens, at most, mean of a request.", min=0.0),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 0,
    json_file: Output = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw TTFT by tenant and policy (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Play a trace of requests through the scheduler on a virtual clock: what would users of
    each policy see?  Nothing is computed; a step takes what --cost says."""
    from framework.bench import arguments, measure
    from framework.bench.cost import StepCost
    from framework.bench.report import as_json, check_folder, table, write_json
    from framework.bench.simulate import SimulationConfig

    config = SimulationConfig(
        cost=StepCost.parse(cost),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        num_pages=num_pages,
        page_size=page_size,
        loop_depth=loop_depth,
    )
    objective = measure.Objective(ttft=slo_ttft, itl=slo_itl)
    if json_file is not None:
        check_folder(json_file)
    if plot is not None:
        from framework.bench.plot import check_plot

        check_plot(plot)
    trace, source = arguments.make_trace(
        arrivals,
        made={
            "rate": rate,
            "num_requests": num_requests,
            "burstiness": burstiness,
            "tenants": tenants,
            "flood": flood or [],
            "prompt_len": prompt_len or ["512"],
            "output_len": output_len or ["128"],
            "seed": seed,
        },
        given=_given(context),
    )
    runs = [
        _play(name, instance, trace, config, objective)
        for name, instance in _policies(context, policy)
    ]
    show_table(table(runs))
    if json_file is not None:
        settings = {
            **source,
            **asdict(config),
            "slo": asdict(objective),
            "policy": policy,
            "plugins": root_options(context).plugins,
            "plugin_options": root_options(context).options,
        }
        write_json(json_file, as_json(runs, settings))
    if plot is not None:
        from framework.bench.plot import plot as draw

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
        typer.Option(help="A folder with vllm/bin/python and model/ to compare with."),
    ] = None,
    peer_script: Annotated[
        Path | None, typer.Option(help="Prints the peer's figures as JSON lines.")
    ] = None,
    json_file: Output = None,
) -> None:
    """Measure what the engine core itself costs per step and per request, in microseconds."""
    from framework.bench.core import as_json, measure, run_peer, table
    from framework.bench.report import check_folder, write_json

    if json_file is not None:
        check_folder(json_file)
    counts = [_count(text) for text in requests.split(",")]
    if (peers is None) != (peer_script is None):
        raise ConfigError("--peers and --peer-script go together", found="one of them")
    ours = [measure(count, steps=steps) for count in counts]
    theirs = run_peer(peers, peer_script) if peers and peer_script else []
    show_table(table(ours, theirs))
    if json_file is not None:
        write_json(json_file, as_json(ours, theirs))


def _count(text: str) -> int:
    if not text.strip().isdecimal() or not 1 <= int(text) <= 2**14:
        raise ConfigError(
            "--requests is invalid", expected=f"integers in [1, {2**14}], by commas", found=text
        )
    return int(text)
