"""What broken attention backends are made of."""

from __future__ import annotations

from framework.contracts.base import Rejected, Rejection
from framework_sdpa.backend import SdpaBackend

PLAYS = tuple(f"ATTN-{number:03}" for number in (*range(30, 55), *range(101, 116)))
"""Clauses that compute something, any of which a plain fault may break."""


def rejected(query, field):
    return Rejected(
        (
            Rejection(
                code=field,
                field=field,
                found=getattr(query, field),
                needed="another",
                remedy="ask another backend",
            ),
        )
    )


class Changed(SdpaBackend):
    """Sdpa with another `answer`, metadata, parameters or output."""

    def __init_subclass__(cls):
        cls.__doc__ = cls.__doc__ or "Broken on purpose."

    def answer(self, query):
        return self.answered(query, super().answer(query))

    def answered(self, query, answer):
        return answer

    def builder(self, group):
        inner, outer = super().builder(group), self

        class Builder:
            def plan(self, common, reuse=None):
                return outer.planned(inner.plan(common, reuse), reuse)

        return Builder()

    def planned(self, common, reuse):
        return common

    def run(self, q, k, v, cache, metadata, params, out):
        super().run(q, k, v, cache, metadata, self.asked(params, q, metadata), out)
        self.spoil(out, q, k, v, cache, metadata, params)

    def asked(self, params, q, metadata):
        return params

    def spoil(self, out, q, k, v, cache, metadata, params):
        pass
