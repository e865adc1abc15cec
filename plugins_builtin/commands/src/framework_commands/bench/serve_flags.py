"""Flags of `framework bench serve`, most of them under vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.errors import ConfigError
from framework_commands.bench.asks import Custom, DataSet, PrefixRepetition, Random, ShareGPT

if TYPE_CHECKING:
    from framework_commands.bench.run import Load


class Endpoint(StrEnum):
    """Which API is asked."""

    COMPLETIONS = "completions"
    CHAT = "chat"


class DataSetName(StrEnum):
    """Where prompts come from."""

    RANDOM = "random"
    SHAREGPT = "sharegpt"
    PREFIX = "prefix_repetition"
    CUSTOM = "custom"


Url = Annotated[str, typer.Option("--url", "--base-url", help="The server.")]
EndpointOption = Annotated[Endpoint, typer.Option(help="Which API is asked.")]
Model = Annotated[str | None, typer.Option("--model", "-m", show_default="the server's first")]
Name = Annotated[DataSetName, typer.Option("--dataset-name", help="Where prompts come from.")]
DataPath = Annotated[
    Path | None, typer.Option("--dataset-path", help="The file of sharegpt or custom.")
]
NumPrompts = Annotated[int, typer.Option(help="Requests at each rate.", min=1)]
InputLen = Annotated[
    int, typer.Option("--input-len", "--random-input-len", min=1, help="Tokens of a prompt.")
]
OutputLen = Annotated[
    int | None,
    typer.Option(
        "--output-len",
        "--random-output-len",
        min=1,
        help="Tokens of an answer, at most.",
        show_default="128, of sharegpt those of the answer there",
    ),
]
Spread = Annotated[
    float,
    typer.Option(
        "--range-ratio",
        "--random-range-ratio",
        min=0.0,
        max=0.999,
        help="Lengths are uniform in length x (1 - ratio) to length x (1 + ratio).",
    ),
]
PrefixLen = Annotated[
    int, typer.Option("--prefix-len", "--random-prefix-len", min=0, help="Shared beginning.")
]
NumPrefixes = Annotated[int, typer.Option("--num-prefixes", min=1, help="Different beginnings.")]
SuffixLen = Annotated[int, typer.Option("--suffix-len", min=1, help="Tokens of an ending.")]
Longest = Annotated[
    int, typer.Option("--sharegpt-max-len", min=2, help="Tokens of what is taken, at most.")
]
Rates = Annotated[
    str,
    typer.Option(
        "--request-rate",
        metavar="RATE[,RATE...]",
        help="Requests per second, one run for each; inf: all at once.",
    ),
]
Burstiness = Annotated[
    float, typer.Option(min=1e-3, max=1e6, help="1: Poisson; less: bursts; more: steadier.")
]
Concurrency = Annotated[
    int | None, typer.Option("--max-concurrency", min=1, help="Requests at one time, at most.")
]
IgnoreEos = Annotated[
    bool, typer.Option("--ignore-eos", help="Ask for all tokens, past an end of sequence.")
]
Goodput = Annotated[
    list[str] | None,
    typer.Option(
        "--goodput",
        metavar="NAME:MS...",
        help="Objectives of a request, as in --goodput ttft:200 tpot:50.",
    ),
]
MoreGoodput = Annotated[list[str] | None, typer.Argument(hidden=True, metavar="NAME:MS")]
Percentiles = Annotated[
    str, typer.Option("--metric-percentiles", metavar="P[,P...]", help="Of every time.")
]
Metrics = Annotated[
    str, typer.Option("--percentile-metrics", help="Shown, of ttft, tpot, itl, e2el.")
]
Warmups = Annotated[int, typer.Option("--num-warmups", min=0, help="Requests before, unmeasured.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed, the same prompts and times.")]
Extra = Annotated[
    str | None, typer.Option("--extra-body", help="Further fields of every request, as JSON.")
]
Timeout = Annotated[float, typer.Option(min=0.1, help="Longest silence of the server, seconds.")]
SaveResult = Annotated[bool, typer.Option("--save-result", help="Write a JSON file.")]
SaveDetailed = Annotated[
    bool, typer.Option("--save-detailed", help="With times and text of each request.")
]
ResultDir = Annotated[Path, typer.Option("--result-dir", help="Where to.")]
ResultFile = Annotated[
    str | None, typer.Option("--result-filename", show_default="of rate, model and time")
]
Plot = Annotated[Path | None, typer.Option(help="Draw latency against load (.png, .svg, .pdf).")]


def parse_rates(text: str) -> list[float]:
    """Read "1,2,inf".  Raises ConfigError."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(one > 0 for one in found) or len(set(found)) != len(found):
        raise ConfigError(
            "--request-rate is invalid",
            expected="RATE[,RATE...], different numbers above 0, or inf",
            found=repr(text),
        )
    return found


def make_load(given: Mapping[str, Any]) -> Load:
    """From the flags of a command, by their names; those that it lacks have their defaults.
    Raises ConfigError."""
    from framework_commands.bench.figures import parse_goodput, parse_percentiles
    from framework_commands.bench.run import Load

    goodput, more = given.get("goodput") or [], given.get("more_goodput") or []
    if more and not goodput:
        raise ConfigError("an argument belongs to no flag", found=" ".join(more))
    return Load(
        data=data_set(given),
        num_prompts=given["num_prompts"],
        burstiness=given["burstiness"],
        concurrency=given.get("max_concurrency"),
        warmups=given.get("num_warmups", 1),
        seed=given["seed"],
        objectives=parse_goodput([*goodput, *more]),
        percentiles=parse_percentiles(given.get("metric_percentiles", "50,90,99")),
    )


def data_set(given: Mapping[str, Any]) -> DataSet:
    """From the flags of a command, by their names.  Raises ConfigError for a data set without
    its file, or a file without its data set."""
    name = DataSetName(given["dataset_name"])
    path = given["dataset_path"]
    needs = name in (DataSetName.SHAREGPT, DataSetName.CUSTOM)
    if needs != (path is not None):
        raise ConfigError(
            f"--dataset-name {name.value} {'needs' if needs else 'takes no'} --dataset-path",
            expected="a file for sharegpt and custom, and for no other",
            found=str(path or "none"),
        )
    output, prefix = given["output_len"] or 128, given["prefix_len"]
    match name:
        case DataSetName.SHAREGPT:
            longest = given["sharegpt_max_len"]
            return ShareGPT(path=Path(path), output=given["output_len"], longest=longest)
        case DataSetName.CUSTOM:
            return Custom(path=Path(path), output=output)
        case DataSetName.PREFIX:
            return PrefixRepetition(
                prefixes=given["num_prefixes"],
                prefix=prefix or 256,
                suffix=given["suffix_len"],
                output=output,
            )
        case DataSetName.RANDOM:
            spread = given["range_ratio"]
            return Random(input=given["input_len"], output=output, spread=spread, prefix=prefix)
