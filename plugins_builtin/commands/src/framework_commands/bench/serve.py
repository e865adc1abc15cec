"""`framework bench serve`: what users of a server would see under load."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from framework.errors import ConfigError
from framework_commands.bench import serve_flags as flags
from framework_commands.bench.figures import parse_metrics
from framework_commands.flags import ApiKey

if TYPE_CHECKING:
    from framework_commands.bench.run import Load
    from framework_commands.bench.target import Target

DEFAULT_URL = "http://127.0.0.1:8000"


def serve(
    context: typer.Context,
    url: flags.Url = DEFAULT_URL,
    model: flags.Model = None,
    api_key: ApiKey = None,
    endpoint: flags.EndpointOption = flags.Endpoint.COMPLETIONS,
    dataset_name: flags.Name = flags.DataSetName.RANDOM,
    dataset_path: flags.DataPath = None,
    num_prompts: flags.NumPrompts = 1000,
    input_len: flags.InputLen = 1024,
    output_len: flags.OutputLen = None,
    range_ratio: flags.Spread = 0.0,
    prefix_len: flags.PrefixLen = 0,
    num_prefixes: flags.NumPrefixes = 10,
    suffix_len: flags.SuffixLen = 256,
    sharegpt_max_len: flags.Longest = 2048,
    request_rate: flags.Rates = "inf",
    burstiness: flags.Burstiness = 1.0,
    max_concurrency: flags.Concurrency = None,
    ignore_eos: flags.IgnoreEos = False,
    goodput: flags.Goodput = None,
    more_goodput: flags.MoreGoodput = None,
    metric_percentiles: flags.Percentiles = "50,90,99",
    percentile_metrics: flags.Metrics = "ttft,tpot,itl,e2el",
    num_warmups: flags.Warmups = 1,
    seed: flags.Seed = 0,
    extra_body: flags.Extra = None,
    timeout: flags.Timeout = 600.0,
    save_result: flags.SaveResult = False,
    save_detailed: flags.SaveDetailed = False,
    result_dir: flags.ResultDir = Path("."),
    result_filename: flags.ResultFile = None,
    plot: flags.Plot = None,
) -> None:
    """Send requests to a server that speaks OpenAI's API and measure its streams. Requests that
    fail are counted apart and have no part in any figure."""
    from framework.bench.load_plot import draw
    from framework_commands.api.address import Address
    from framework_commands.bench.target import find_target

    load = flags.make_load(context.params)
    rates, metrics = flags.parse_rates(request_rate), parse_metrics(percentile_metrics)
    fields = _fields(extra_body)
    save = save_result or save_detailed or result_filename is not None
    check_files(result_dir / (result_filename or "x.json") if save else None, plot)
    address, api = Address.parse(url, api_key), endpoint.value
    target = find_target(
        address, model, endpoint=api, ignore_eos=ignore_eos, fields=fields, seconds=timeout
    )
    results = list(_measured(target, load, rates, metrics, detailed=save_detailed))
    if save:
        name = result_filename or _name(request_rate, target.model, results[0]["date"])
        write(result_dir / name, results)
    if plot is not None:
        draw(plot, results, load.objectives)
    if not any(result["completed"] for result in results):
        raise typer.Exit(1)


def _measured(
    target: Target, load: Load, rates: Sequence[float], metrics: Sequence[str], *, detailed: bool
) -> Iterator[dict[str, Any]]:
    """The result of one run after the other, each printed as soon as it is there."""
    from framework_commands.bench.run import run_rates, with_details

    for result, driven in run_rates(target, load, rates):
        show(result, metrics, load.percentiles)
        stamped = {"date": time.strftime("%Y%m%d-%H%M%S"), "backend": "openai", **result}
        yield with_details(stamped, driven) if detailed else stamped


def _fields(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(f"--extra-body is no JSON: {error}", found=text) from error
    if not isinstance(found, dict):
        raise ConfigError("--extra-body is no object", expected='{"FIELD": VALUE}', found=text)
    return found


def check_files(result: Path | None, plot: Path | None) -> None:
    """Find out before the work whether its results can be written.  Raises ConfigError."""
    from framework.bench.plot import check_plot
    from framework.bench.report import check_folder

    if result is not None:
        check_folder(result)
    if plot is not None:
        check_plot(plot)


def _name(rate: str, model: str, date: str) -> str:
    """As vLLM names its files."""
    short = "".join(c if c.isalnum() or c in "-._" else "-" for c in model.rpartition("/")[2])
    return f"openai-{rate.replace(',', '-')}qps-{short or 'model'}-{date}.json"


def write(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """One run is an object as vLLM writes it; several are {"runs": [...]}."""
    from framework.bench.report import write_json

    write_json(path, results[0] if len(results) == 1 else {"runs": list(results)})


ROWS = (
    ("answered", "completed", "{}"),
    ("failed", "failed", "{}"),
    ("seconds", "duration", "{:.2f}"),
    ("input tokens", "total_input_tokens", "{}"),
    ("output tokens", "total_output_tokens", "{}"),
    ("requests/s", "request_throughput", "{:.2f}"),
    ("good requests/s", "request_goodput", "{:.2f}"),
    ("good requests", "goodput_fraction", "{:.1%}"),
    ("output tokens/s", "output_throughput", "{:.1f}"),
    ("tokens/s", "total_token_throughput", "{:.1f}"),
    ("most at one time", "max_concurrent_requests", "{}"),
)


def show(result: Mapping[str, Any], metrics: Sequence[str], percentiles: Sequence[float]) -> None:
    """Print one run."""
    print(f"request rate {result['request_rate']}")
    for label, name, form in ROWS:
        if name in result:
            print(f"  {label:<18}{form.format(result[name]):>12}")
    for failure, count in result["failures"].items():
        print(f"    {failure:<16}{count:>12}")
    if result["output_tokens_estimated"]:
        print("  (the server tells no usage: output tokens are chunks)")
    names = ["mean", "median", *(f"p{one:g}" for one in percentiles)]
    print(f"  {'milliseconds':<12}" + "".join(f"{name:>12}" for name in names))
    for metric in metrics:
        values = [result[f"{name}_{metric}_ms"] for name in names]
        cells = ("-" if value is None else f"{value:.2f}" for value in values)
        print(f"  {metric.upper():<12}" + "".join(f"{cell:>12}" for cell in cells), flush=True)
