"""`framework bench throughput` and `latency`: a model in this process, without a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli import options
from framework.errors import FrameworkError
from framework_commands.bench import serve_flags as flags
from framework_commands.bench.figures import parse_percentiles

if TYPE_CHECKING:
    import numpy as np

    from framework.engine.llm import LLM
    from framework.engine.outputs import RequestOutput
    from framework_commands.bench.asks import Ask, DataSet, Words

Json = Annotated[
    Path | None, typer.Option("--json", "--output-json", help="Write the result to this file.")
]
Clock = Callable[[], float]


def throughput(
    context: typer.Context,
    model: options.Model = None,
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
    num_iters: Annotated[int, typer.Option(help="How often all of it is done.", min=1)] = 1,
    num_warmups: flags.Warmups = 1,
    metric_percentiles: flags.Percentiles = "50,90,99",
    respect_eos: Annotated[
        bool, typer.Option("--respect-eos", help="End at an end of sequence; else go on.")
    ] = False,
    seed: flags.Seed = 0,
    json_file: Json = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """How many tokens a model generates per second when everything is asked at once."""
    data = flags.data_set(context.params)
    percentiles = parse_percentiles(metric_percentiles)
    _check(json_file)
    engine = {"model": model, "dtype": dtype, "max_model_len": max_model_len}
    with options.make_llm(context, engine, config, settings) as llm:
        found = iterations(
            llm,
            data,
            num_prompts,
            warmups=num_warmups,
            count=num_iters,
            seed=seed,
            ignore_eos=not respect_eos,
        )
        runs = list(found)
        name = llm.config.model.model
    result = _throughput(name, runs, percentiles)
    rate, tokens = result["requests_per_second"], result["tokens_per_second"]
    print(f"{result['num_requests']} requests in {result['elapsed_time']:.2f} s: {rate:.2f}/s")
    print(f"{tokens:.1f} tokens/s, {result['output_tokens_per_second']:.1f} output tokens/s")
    if num_iters > 1:
        _show("seconds of an iteration", result["percentiles"])
    _write(json_file, result)


def _throughput(
    model: str, runs: Sequence[dict[str, Any]], percentiles: Sequence[float]
) -> dict[str, Any]:
    """All iterations together."""
    seconds = sum(run["elapsed_time"] for run in runs)
    requests, prompt, output = (
        sum(run[key] for run in runs) for key in ("num_requests", "input_tokens", "output_tokens")
    )
    return {
        "model_id": model,
        "num_iters": len(runs),
        "elapsed_time": seconds,
        "num_requests": requests,
        "total_num_tokens": prompt + output,
        "requests_per_second": requests / seconds,
        "tokens_per_second": (prompt + output) / seconds,
        "output_tokens_per_second": output / seconds,
        "percentiles": spread([run["elapsed_time"] for run in runs], percentiles),
        "iterations": runs,
    }


def latency(
    context: typer.Context,
    model: options.Model = None,
    batch_size: Annotated[int, typer.Option(help="Requests at one time.", min=1)] = 8,
    input_len: flags.InputLen = 32,
    output_len: Annotated[int, typer.Option("--output-len", min=1)] = 128,
    num_iters_warmup: Annotated[int, typer.Option(help="Unmeasured batches.", min=0)] = 10,
    num_iters: Annotated[int, typer.Option(help="Measured batches.", min=1)] = 30,
    metric_percentiles: flags.Percentiles = "10,25,50,75,90,99",
    seed: flags.Seed = 0,
    json_file: Json = None,
    dtype: options.Dtype = None,
    max_model_len: options.MaxModelLen = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """How long one batch of requests of one length takes, from the first to the last token."""
    from framework_commands.bench.asks import Random

    percentiles = parse_percentiles(metric_percentiles)
    _check(json_file)
    data = Random(input=input_len, output=output_len, spread=0.0, prefix=0)
    engine = {"model": model, "dtype": dtype, "max_model_len": max_model_len}
    with options.make_llm(context, engine, config, settings) as llm:
        found = iterations(
            llm,
            data,
            batch_size,
            warmups=num_iters_warmup * batch_size,
            count=num_iters,
            seed=seed,
            ignore_eos=True,
        )
        latencies = [run["elapsed_time"] for run in found]
        name = llm.config.model.model
    result = {
        "model_id": name,
        "batch_size": batch_size,
        "input_len": input_len,
        "output_len": output_len,
        "avg_latency": sum(latencies) / len(latencies),
        "latencies": latencies,
        "percentiles": spread(latencies, percentiles),
    }
    print(f"mean {result['avg_latency']:.4f} s of {num_iters} batches of {batch_size}")
    _show("seconds of a batch", result["percentiles"])
    _write(json_file, result)


def iterations(
    llm: LLM,
    data: DataSet,
    requests: int,
    *,
    warmups: int,
    count: int,
    seed: int,
    ignore_eos: bool,
    clock: Clock = time.perf_counter,
) -> Iterator[dict[str, Any]]:
    """Seconds and tokens of each of `count` runs of so many requests, greedy, behind `warmups`
    requests.  Prompts differ from run to run, so that none finds another's in the cache.

    Raises FrameworkError if a request fails: a failure is no fast request.
    """
    import numpy as np

    words, rng = words_of(llm), np.random.default_rng(seed)
    if warmups:
        _run(llm, _asks(data, words, rng, min(warmups, requests)), ignore_eos, clock)
        for _ in range((warmups - 1) // requests):
            _run(llm, _asks(data, words, rng, requests), ignore_eos, clock)
    for _ in range(count):
        yield _run(llm, _asks(data, words, rng, requests), ignore_eos, clock)


def words_of(llm: LLM) -> Words:
    """Ordinary tokens of the model, and how to count."""
    from framework_commands.bench.asks import COMMON, Words

    tokenizer = llm.get_tokenizer()
    special = tokenizer.special_ids
    ids = tokenizer.encode(" ".join(COMMON), add_special_tokens=False)
    ordinary = [one for one in ids if one not in special]
    return Words(ordinary, lambda text: len(tokenizer.encode(text)))


def _asks(data: DataSet, words: Words, rng: np.random.Generator, count: int) -> list[Ask]:
    return data.draw(words, rng, count)


def _run(llm: LLM, asks: Sequence[Ask], ignore_eos: bool, clock: Clock) -> dict[str, Any]:
    from framework.contracts.sampling import SamplingParams

    params = [
        SamplingParams(temperature=0, max_tokens=ask.output, ignore_eos=ignore_eos) for ask in asks
    ]
    prompts: list[Any] = [_prompt(llm, ask) for ask in asks]
    started = clock()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = clock() - started
    _raise_failures(outputs)
    return {
        "elapsed_time": seconds,
        "num_requests": len(outputs),
        "input_tokens": sum(len(one.prompt_token_ids) for one in outputs),
        "output_tokens": sum(len(one.outputs[0].token_ids) for one in outputs),
    }


def _prompt(llm: LLM, ask: Ask) -> Any:
    if isinstance(ask.prompt, list) and not isinstance(ask.prompt[0], int):
        return llm.render_chat(ask.prompt)
    return ask.prompt


def _raise_failures(outputs: Sequence[RequestOutput]) -> None:
    failed = [one.outputs[0] for one in outputs if one.outputs[0].finish_reason == "error"]
    if failed:
        raise FrameworkError(
            f"{len(failed)} of {len(outputs)} requests failed, so there is nothing to measure",
            found=failed[0].stop_reason,
        )


def spread(values: Sequence[float], percentiles: Sequence[float]) -> dict[str, float]:
    """Percentile -> value."""
    import numpy as np

    found = np.percentile(values, percentiles)
    return {f"{p:g}": float(value) for p, value in zip(percentiles, found, strict=True)}


def _check(json_file: Path | None) -> None:
    from framework.bench.report import check_folder

    if json_file is not None:
        check_folder(json_file)


def _write(json_file: Path | None, result: object) -> None:
    from framework.bench.report import write_json

    if json_file is not None:
        write_json(json_file, result)


def _show(what: str, percentiles: dict[str, float]) -> None:
    cells = "  ".join(f"p{name} {value:.4f}" for name, value in percentiles.items())
    print(f"{what}: {cells}")
