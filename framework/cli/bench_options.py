"""Flags of `framework bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Output = Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")]
Plot = Annotated[
    Path | None, typer.Option(help="Draw TTFT by tenant and policy (.png, .svg, .pdf).")
]

# What comes when

Arrivals = Annotated[
    Path | None,
    typer.Option(
        help='A file of lines {"arrival": SECONDS, "prompt": TOKENS, "output": TOKENS, '
        '"tenant": NAME, "priority": INTEGER}; the last two may be left out.'
    ),
]
Rate = Annotated[float, typer.Option(help="Requests per second; inf: all at once.", min=1e-6)]
NumRequests = Annotated[int, typer.Option(help="Requests, floods not counted.", min=0, max=2**22)]
Burstiness = Annotated[
    float, typer.Option(help="1: Poisson; less: bursts; more: steadier.", min=1e-3, max=1e6)
]
Tenants = Annotated[
    str, typer.Option(metavar="NAME[:SHARE],...", help="Tenants and their parts of the rate.")
]
Flood = Annotated[
    list[str] | None,
    typer.Option(metavar="TENANT:COUNT@SECONDS", help="Requests that come all at once."),
]
Lengths = Annotated[
    list[str] | None,
    typer.Option(
        help="TOKENS or a distribution (uniform:LOW:HIGH, normal:MEAN:DEVIATION, "
        "lognormal:MEDIAN:SIGMA, exponential:MEAN); TENANT=... for one tenant."
    ),
]
Seed = Annotated[int, typer.Option(help="The same seed, the same trace.", min=0, max=2**63 - 1)]

# Who serves it

Policies = Annotated[
    str, typer.Option(metavar="NAME[,NAME...]", help="Scheduling policies to compare.")
]
MaxNumSeqs = Annotated[int, typer.Option(help="Most requests that run.", min=1, max=2**16)]
MaxNumBatchedTokens = Annotated[
    int, typer.Option(help="Most tokens of one step.", min=1, max=2**30)
]
NumPages = Annotated[int, typer.Option(help="Cache pages.", min=2, max=2**22)]
PageSize = Annotated[int, typer.Option(help="Tokens per page.", min=1, max=2**16)]
LoopDepth = Annotated[int, typer.Option(help="Steps in flight.", min=1, max=2)]
Cost = Annotated[
    str, typer.Option(help="base_us=..., token_us=..., row_us=..., context_us=... of a step.")
]

# What users are content with

SloTtft = Annotated[
    float | None, typer.Option(help="Seconds to the first token, at most.", min=0.0)
]
SloItl = Annotated[
    float | None,
    typer.Option(help="Seconds between tokens, at most, mean of a request.", min=0.0),
]
