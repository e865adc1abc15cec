"""`framework complete`: how texts go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

import typer

from framework.cli import options
from framework.errors import EngineDeadError, FrameworkError
from framework_commands.chat import show
from framework_commands.flags import ApiKey, Url, open_speaker


def complete(
    context: typer.Context,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT]...", help="Texts; default: the lines of stdin."),
    ] = None,
    model: options.Model = None,
    url: Url = None,
    api_key: ApiKey = None,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of an answer.")] = 128,
    temperature: options.Temperature = None,
    top_p: options.TopP = None,
    top_k: options.TopK = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    dtype: options.Dtype = None,
    quantization: options.Quantization = None,
    max_model_len: options.MaxModelLen = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Let a model continue texts, here or behind a URL, one after the other, as it comes."""
    engine = {
        "model": model,
        "dtype": dtype,
        "quantization": quantization,
        "max_model_len": max_model_len,
    }
    sampling = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "min_p": min_p,
        "seed": seed,
        "stop": stop or None,
    }
    failed = 0
    with open_speaker(
        context, url, api_key, engine, sampling, {}, config=config, settings=settings
    ) as speaker:
        for text in prompts or lines():
            try:
                for piece in speaker.complete(text):
                    show(piece)
            except EngineDeadError:
                raise
            except FrameworkError as error:
                failed += 1
                print(f"error: {error}", file=sys.stderr, flush=True)
    if failed:
        raise typer.Exit(1)


def lines() -> Iterator[str]:
    """Those of stdin; empty ones are left out."""
    prompt = ""
    if sys.stdin.isatty():
        prompt = "> "
        with suppress(ImportError):
            import readline  # noqa: F401  (input() then edits lines and has a history)
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        if line.strip():
            yield line
