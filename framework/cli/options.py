"""Flags that several sub-commands share, and what they make of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from framework.cli.context import DEFAULT_MODEL as DEFAULT_MODEL
from framework.cli.context import resolved_of

if TYPE_CHECKING:
    from framework.contracts.sampling import SamplingParams
    from framework.engine.llm import LLM

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        help="An alias, a folder, a file or a hub id.",
        show_default=DEFAULT_MODEL,
    ),
]
Config = Annotated[
    Path | None, typer.Option("--config", help="A YAML file with the engine's configuration.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Set any option of the engine."),
]
Level = Annotated[
    int | None,
    typer.Option(
        "-O",
        "--optimization-level",
        help="0: plain, 1: fused kernels, 2: what is fastest here, 3: compiled.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="Element type, such as float32.")]
Quantization = Annotated[
    str | None, typer.Option(help="How weights are kept, such as int8.", show_default="as they are")
]
KvCacheDtype = Annotated[
    str | None,
    typer.Option(help="Type of K and V in the cache, such as float32.", show_default="auto"),
]
MaxModelLen = Annotated[int | None, typer.Option(help="Longest sequence, in tokens.")]
Temperature = Annotated[float | None, typer.Option(help="0 is greedy.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus: keep this much probability.")]
TopK = Annotated[int | None, typer.Option(help="Keep the k most probable tokens.")]
MinP = Annotated[float | None, typer.Option(help="Relative to the most probable token.")]
Seed = Annotated[int | None, typer.Option(help="Makes the answer repeatable.")]
Stop = Annotated[list[str] | None, typer.Option(help="A string that ends the answer.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on after end-of-sequence.")]


def make_llm(
    context: typer.Context,
    flags: Mapping[str, object],
    config: Path | None,
    settings: list[str] | None,
) -> LLM:
    """Load the engine.  flags: options of LLM; None leaves one to file, environment, default."""
    from framework.engine.llm import LLM

    return LLM.from_config(resolved_of(context, flags, config, settings))


def given_sampling(flags: Mapping[str, object]) -> dict[str, Any]:
    """The flags that are given.  Raises InputError for a value that no model takes, which is
    known before one is loaded."""
    from framework.contracts.sampling import SamplingParams

    given = {name: value for name, value in flags.items() if value is not None}
    SamplingParams(**cast("dict[str, Any]", given))
    return given


def make_params(llm: LLM, given: Mapping[str, Any], **usual: Any) -> SamplingParams:
    """The model's recommendation, or `usual` where it has none, changed by what is given."""
    return llm.get_default_sampling_params(**usual).replace(**given)
