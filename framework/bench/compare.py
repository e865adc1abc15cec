"""Ours and its peers on the same work in the same run: rounds interleaved, medians compared."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from framework.bench import goals
from framework.bench.peers import Metrics, Peers, run_ours, run_peers
from framework.bench.workload import Case
from framework.errors import ConfigError


@dataclass(slots=True)
class Samples:
    """metrics: task -> subject -> one entry per round.  missing: task and subject -> why it was
    not measured."""

    metrics: dict[str, dict[str, list[Metrics]]] = field(default_factory=dict)
    missing: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, task: str, subject: str, found: Metrics) -> None:
        self.metrics.setdefault(task, {}).setdefault(subject, []).append(found)

    def median(self, task: str, subject: str, metric: str) -> float | None:
        values = [
            one[metric] for one in self.metrics.get(task, {}).get(subject, ()) if metric in one
        ]
        return statistics.median(values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """One way to run ours: words of `framework bench`, and fields of the configuration."""

    subject: str
    words: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """peers: what their program is told behind the folder; None: only ours does it.  read: from
    our JSON to metrics."""

    name: str
    ours: Sequence[Ours]
    peers: Sequence[str] | None
    read: Callable[[Any], Metrics]


INT8: Mapping[str, str] = {"quantization": "int8"}
UNCACHED: Mapping[str, str] = {"enable_prefix_caching": "false"}
CASES = ("1x128+64", "16x128+64", "64x128+64")


def tasks(model: str, gguf: str | None, cases: Sequence[str] = CASES) -> Iterator[Task]:
    """All that is compared.  gguf: the same model in that format, for the start."""
    for text in (*cases, goals.LONG):
        case = Case.parse(text)
        words = ("case", text, "--model", model)
        yield Task(
            name=str(case),
            ours=(
                Ours(subject=goals.OURS, words=words),
                Ours(subject=goals.INT8, words=words, settings=INT8),
            ),
            peers=(str(case.requests), str(case.prompt), str(case.output)),
            read=_of_case,
        )
    shared = ("case", "8x1016+8", "--shared-prefix", "1000", "--warm", "--model", model)
    yield Task(
        name=goals.PREFIX,
        ours=(
            Ours(subject=goals.OURS, words=shared),
            Ours(subject=goals.UNCACHED, words=shared, settings=UNCACHED),
        ),
        peers=None,
        read=_of_case,
    )
    for name in (goals.NEAR, goals.FAR):
        requests, context = name.split()[0], name.split()[-1]
        steps = ("step", "--requests", requests, "--context", context, "--model", model)
        yield Task(
            name=name, ours=(Ours(subject=goals.OURS, words=steps),), peers=None, read=_of_step
        )
    starts = [Ours(subject=goals.OURS, words=("start", "--model", model))]
    if gguf is not None:
        starts.append(Ours(subject=goals.GGUF, words=("start", "--model", gguf)))
    yield Task(name=goals.START, ours=starts, peers=("start",), read=_of_start)


def _of_case(result: Any) -> Metrics:
    case = result["cases"][0]
    names = ("seconds", goals.RATE, goals.TTFT, goals.DECODE)
    return {name: case[name] for name in names if case[name] is not None}


def _of_step(result: Any) -> Metrics:
    return {goals.STEP: result["step_ms"]}


def _of_start(result: Any) -> Metrics:
    return {goals.TTFT: result["seconds"], "peak_mib": result["peak_mib"]}


def compare(
    work: Sequence[Task],
    rounds: int,
    peers: Callable[[Sequence[str]], Peers] | None,
    tell: Callable[[str], None],
    ours: Callable[[Sequence[str], Mapping[str, str]], Any] = run_ours,
) -> Samples:
    """Every task once per round, ours and the peers in turn, so that a machine that becomes
    slower does so for all.

    peers: from the words of a task to what they found.  What one way of ours cannot do is noted
    and left out of the rounds to come; the plain one must work.
    """
    samples = Samples()
    for number in range(rounds):
        for task in work:
            tell(f"round {number + 1} of {rounds}: {task.name}")
            for way in task.ours:
                if (task.name, way.subject) in samples.missing:
                    continue
                try:
                    found = task.read(ours(way.words, way.settings))
                except ConfigError as error:
                    if way.subject == goals.OURS:
                        raise
                    samples.missing[task.name, way.subject] = str(error)
                    continue
                samples.add(task.name, way.subject, found)
            if peers is not None and task.peers is not None:
                found_peers = peers(task.peers)
                for name, theirs in found_peers.metrics.items():
                    samples.add(task.name, name, theirs)
                for name, reason in found_peers.failed.items():
                    samples.missing[task.name, name] = reason
    return samples


def peers_of(folder: Path, program: Sequence[str]) -> Callable[[Sequence[str]], Peers]:
    """What `compare` calls.  Raises ConfigError if the folder is not there."""
    if not folder.is_dir():
        raise ConfigError("the peers' folder is missing", expected="a folder", found=str(folder))
    return lambda words: run_peers(program, folder.absolute(), words)
