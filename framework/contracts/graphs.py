"""Graphs: work of a device that is recorded once and given to it again as a whole.

A platform whose device can record gives a `GraphDevice` (`Platform.graphs`).  What is recorded
reads and writes the very memory that it was recorded with: whoever records keeps its inputs in
tensors that stay, and writes new contents into them before each replay.
"""

from __future__ import annotations

from typing import Protocol

SUPPORT = ("none", "decode", "uniform", "always")
"""How far attention can be part of a graph (`AttentionSupported.graphs`), each level holding those
before it: not at all; in steps that have one query of each row; in steps that have the same number
of queries of each row; in any step."""


class Graph(Protocol):
    """Recorded work."""

    def replay(self) -> None:
        """Give it to the device again, in the order of the calls around it.  Host code that ran
        while it was recorded does not run again."""
        ...


class GraphDevice(Protocol):
    """Records what the calling thread gives to the device.

    begin and end come in turns.  Between them nothing may be read back to the host, and tensors
    that are made there are memory of the graph: they hold anything until the first replay, and
    another graph of the same GraphDevice may write over those that nothing refers to any more.
    """

    def begin(self) -> None:
        """Record from now on."""
        ...

    def end(self) -> Graph:
        """What was recorded.  Raises whatever the device says of work that it cannot record; it
        records nothing afterwards."""
        ...
