"""Flags that several commands share, and what they make of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from framework.cli import options
from framework.errors import ConfigError
from framework_commands.api.errors import KEY_VARIABLE

if TYPE_CHECKING:
    from framework_commands.speaking import Speaker

Url = Annotated[
    str | None,
    typer.Option("--url", help="A server that speaks OpenAI's API, instead of a model here."),
]
ApiKey = Annotated[str | None, typer.Option(help=f"Key of that server; better in {KEY_VARIABLE}.")]


@contextmanager
def open_speaker(
    context: typer.Context,
    url: str | None,
    key: str | None,
    engine: Mapping[str, object],
    sampling: Mapping[str, object],
    usual: Mapping[str, Any],
    *,
    config: Path | None,
    settings: list[str] | None,
) -> Generator[Speaker, None, None]:
    """Who answers.  engine: options of LLM, the model among them; sampling: fields of requests;
    None leaves one out.  usual: where a model here recommends nothing.

    Raises InputError for sampling that no model takes, ConfigError for flags of an engine beside
    --url, and whatever loading a model or asking a server raises.
    """
    from framework_commands.speaking import Model, Remote

    given = options.given_sampling(sampling)
    if url is None:
        with options.make_llm(context, engine, config, settings) as llm:
            params = llm.get_default_sampling_params(**{k: v for k, v in usual.items() if v})
            yield Model(llm, params.replace(**{**_unset(usual), **given}))
        return
    from framework_commands.api.address import Address
    from framework_commands.api.talk import Talk

    refuse_engine_flags({**engine, "config": config, "set": settings or None})
    with Talk(Address.parse(url, key)) as talk:
        yield Remote(talk, {"model": engine.get("model") or talk.model(), **given})


def _unset(usual: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in usual.items() if value is None}


def refuse_engine_flags(given: Mapping[str, object]) -> None:
    """Raises ConfigError for flags that say how to load a model, which a server has done."""
    wrong = [name for name, value in given.items() if value is not None and name != "model"]
    if wrong:
        raise ConfigError(
            "--url and flags of an engine exclude each other",
            expected="--url with --model at most",
            found=", ".join("--" + name.replace("_", "-") for name in wrong),
        )
