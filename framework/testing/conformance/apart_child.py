"""The other side of `framework.testing.conformance.apart`: runs clauses and tells of each."""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import sys
from contextlib import suppress
from pathlib import Path

from framework.plugins.tied import orders
from framework.testing.conformance.apart import AGAIN, LENGTH, Order
from framework.testing.conformance.catalogue import load_suite
from framework.testing.conformance.check import complete, prepare
from framework.testing.conformance.outcomes import Outcome
from framework.testing.conformance.run import Run


class _Teller:
    """Sends pickled messages: the id of a clause that begins, its outcome, and the report."""

    def __init__(self, channel: int) -> None:
        os.set_inheritable(channel, False)
        self._channel = channel

    def tell(self, message: object) -> None:
        text = pickle.dumps(message)
        data = memoryview(LENGTH.pack(len(text)) + text)
        while data:
            data = data[os.write(self._channel, data) :]


def main(channel: int) -> None:
    """Do what stdin says."""
    # The core logs what plugins do wrong, which here is what the report tells.
    logging.getLogger("framework").addHandler(logging.NullHandler())
    order: Order = orders()
    teller = _Teller(channel)
    with Path(order.crash).open("w") as crash:
        faulthandler.enable(crash, all_threads=False)
        run = prepare(
            order.plugin,
            suite=load_suite(order.suite) if order.suite else None,
            options=order.options,
            ad_hoc=order.ad_hoc,
            only=order.only,
            watch=lambda clause, outcome: _watch(run, teller, outcome or clause.id),
            **order.more,
        )
        run.adopt(order.known)
        report = complete(run, order.only)
        with suppress(Exception):  # it may be the plugin's
            sys.stdout.flush()
        teller.tell(report)
        os._exit(0)  # without what the plugin left behind: threads, and errors at the end


def _watch(run: Run, teller: _Teller, message: Outcome | str) -> None:
    """Tell, and leave the rest to another process where this one is no place for it."""
    teller.tell(message)
    if run.spoilt:
        teller.tell(AGAIN)
        os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
