"""`framework run-batch`: a file of requests becomes a file of results."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from framework.cli import options
from framework.cli.context import resolved_of
from framework.errors import ConfigError
from framework_commands.flags import ApiKey, Url, refuse_engine_flags

if TYPE_CHECKING:
    from framework.config.resolve import Resolved
    from framework_commands.api.address import Address
    from framework_commands.batch.lines import Request, Wrong
    from framework_commands.batch.work import Results, Sender


class Order(StrEnum):
    """Of the results."""

    COMPLETION = "completion"
    INPUT = "input"


def run_batch(
    context: typer.Context,
    input_file: Annotated[
        Path, typer.Option("--input-file", "-i", help="Requests, one JSON object a line.")
    ],
    output_file: Annotated[Path, typer.Option("--output-file", "-o", help="Results, likewise.")],
    url: Url = None,
    api_key: ApiKey = None,
    model: options.Model = None,
    order: Annotated[Order, typer.Option(help="Of the results.")] = Order.COMPLETION,
    max_concurrency: Annotated[int, typer.Option(help="Requests at one time.", min=1)] = 128,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the results that are there.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Forget the results that are there.")
    ] = False,
    retries: Annotated[
        int, typer.Option(help="How often a busy server is asked again.", min=0)
    ] = 5,
    timeout: Annotated[float, typer.Option(help="Longest silence, seconds.", min=0.1)] = 3600.0,
    front_end: Annotated[str, typer.Option(help="Front end that serves in here.")] = "http",
    tool_parser: Annotated[str | None, typer.Option(help="As of `framework serve`.")] = None,
    reasoning_parser: Annotated[str | None, typer.Option(help="As of `framework serve`.")] = None,
    dtype: options.Dtype = None,
    quantization: options.Quantization = None,
    max_model_len: options.MaxModelLen = None,
    config: options.Config = None,
    settings: options.Settings = None,
) -> None:
    """Work off a file of requests in OpenAI's batch format, by a model here or a server.

    Without --url the requests go to the endpoints of `framework serve` in this process; nothing
    listens on a port. Each line has a result, also one that is no request; the status is 1 if
    any result holds an error.
    """
    from framework_commands.api.address import Address
    from framework_commands.batch.lines import keep_done, read_requests

    flags = {
        "model": model,
        "dtype": dtype,
        "quantization": quantization,
        "max_model_len": max_model_len,
        "tool_parser": tool_parser,
        "reasoning_parser": reasoning_parser,
    }
    address: Address | None = None
    resolved: Resolved | None = None
    if url is not None:
        refuse_engine_flags({**flags, "model": model, "config": config, "set": settings or None})
        address = Address.parse(url, api_key)
    else:
        resolved = resolved_of(context, flags, config, settings)
    _check(input_file, output_file, resume=resume, overwrite=overwrite)
    done = keep_done(output_file) if resume and output_file.exists() else set()

    requests = read_requests(input_file, done)
    sending = _sender(address, resolved, front_end, timeout, retries)
    results = asyncio.run(
        _work(requests, sending, output_file, order, max_concurrency, goes_on=resume)
    )
    before = f", {len(done)} were there" if resume else ""
    print(f"{results.written} results, {results.wrong} with errors{before}", file=sys.stderr)
    if results.wrong:
        raise typer.Exit(1)


async def _work(
    requests: Iterator[Request | Wrong],
    sending: AbstractAsyncContextManager[Sender],
    file: Path,
    order: Order,
    concurrency: int,
    *,
    goes_on: bool,
) -> Results:
    """The file is there once the server is: a model that cannot be loaded leaves none."""
    from framework_commands.batch.work import Results, work

    async with sending as sender:
        with file.open("a" if goes_on else "w", encoding="utf-8") as sink:
            results = Results(sink, ordered=order is Order.INPUT)
            await work(requests, sender, results, concurrency)
    return results


def _check(source: Path, target: Path, *, resume: bool, overwrite: bool) -> None:
    """Raises ConfigError for files that would be lost or cannot be had."""
    from framework.bench.report import check_folder

    if not source.is_file() and not source.is_fifo():
        raise ConfigError("there is no batch", expected="a file with -i", found=str(source))
    check_folder(target)
    if resume and overwrite:
        raise ConfigError("--resume and --overwrite exclude each other", expected="one of them")
    if target.exists() and source.exists() and target.samefile(source):
        raise ConfigError("results and requests are one file", found=str(target))
    if target.exists() and not (resume or overwrite) and not _is_device(target):
        raise ConfigError(
            "the results are there already",
            found=str(target),
            mend="--resume goes on with them, --overwrite forgets them",
        )


def _is_device(path: Path) -> bool:
    return not path.is_file()


@contextlib.asynccontextmanager
async def _sender(
    address: Address | None,
    resolved: Resolved | None,
    front_end: str,
    timeout: float,
    retries: int,
) -> AsyncGenerator[Sender, None]:
    from framework_commands.api.address import UNIX, Address
    from framework_commands.batch.work import Sender

    async with contextlib.AsyncExitStack() as stack:
        check: Callable[[], None] | None = None
        if address is None:
            assert resolved is not None
            from framework_commands.batch.local import local_server

            path, engine = await stack.enter_async_context(local_server(resolved, front_end))
            address, check = Address.parse(f"{UNIX}{path}", ""), engine.check_health
        http = await stack.enter_async_context(address.client(timeout))
        yield Sender(http=http, url=address.url, retries=retries, check=check)
