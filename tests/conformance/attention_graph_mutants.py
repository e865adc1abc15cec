"""Attention backends that say of graphs what does not hold, or read what a replay does not."""

from __future__ import annotations

from dataclasses import replace

from framework.contracts.attention_backend import AttentionSupported
from tests.conformance.attention_changed import Changed
from tests.conformance.mutants import breaks, mutants_of


def claims(answer, graphs):
    good = isinstance(answer, AttentionSupported)
    return replace(answer, graphs=graphs) if good else answer


class TakesGraphs(Changed):
    """It serves a query with a graph as any other."""

    def answer(self, query):
        full = query.graph_mode == "full"
        return super().answer(replace(query, graph_mode="none") if full else query)


class Joins(TakesGraphs):
    """It claims to be part of graphs of one query a row."""

    def answered(self, query, answer):
        return claims(answer, "decode")


@breaks("ATTN-116")
class ReadsTheHostInAGraph(Joins):
    """Its `run` asks the twins on the host, which a replay does not."""

    def builder(self, group):
        made = super().builder(group)
        made.renew = lambda common, metadata: None
        return made


@breaks("ATTN-116")
class RenewsNothing(Joins):
    """It has no `renew`."""


@breaks("ATTN-116")
class HasItsOwnWord(TakesGraphs):
    """Nobody knows what it means by that."""

    def answered(self, query, answer):
        return claims(answer, "mostly")


@breaks("ATTN-116")
class SaysTwoThings(Changed):
    """It claims graphs, and rejects a query with one."""

    def answered(self, query, answer):
        return claims(answer, "decode")


@breaks("ATTN-216")
class JoinsUnsaid(TakesGraphs):
    """It can be part of graphs, and says that it can be of none."""


MUTANTS = mutants_of(list(globals().values()))
