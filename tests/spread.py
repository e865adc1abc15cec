"""How tests are spread over the workers of pytest-xdist, in place of its `--dist loadfile`.

Tests of one file stay together, as they share models; so do those of a folder that share what
takes long to set up.  What takes long itself comes first, so that no worker has it left at the end.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from xdist.scheduler import LoadFileScheduling

TOGETHER = (
    "endpoints/http/tests/",  # servers
    "plugins_builtin/commands/tests/",  # a server
    "tests/examples/",  # what pip installed
)
LONG = (
    *TOGETHER,
    "tests/composition/test_matrix.py",
    "tests/parity/",
    "tests/serving/",
    "tests/structured/",
    "tests/docs/test_readme.py",
    "tests/conformance/test_endpoint.py",
    "tests/conformance/test_new.py",
    "attention_backends/cpu_paged/tests/test_cpu_packed.py",
    "attention_backends/triton/tests/test_in_the_interpreter.py",
)
"""Of the rest those with the most tests come first."""


def scope_of(name: str) -> str:
    """What stays together with the test of this name: a file, or a folder."""
    return next((f for f in TOGETHER if name.startswith(f)), name.partition("::")[0])


def in_order(items: list[Any]) -> list[Any]:
    """The tests, with those first that are to be begun first."""
    sizes = Counter(scope_of(item.nodeid) for item in items)

    def rank(item: Any) -> tuple[bool, int, str]:
        scope = scope_of(item.nodeid)
        return not scope.startswith(LONG), -sizes[scope], scope

    return sorted(items, key=rank)


class FilesAndFolders(LoadFileScheduling):
    """Work units in the order in which the workers found them."""

    def __init__(self, config: Any, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
