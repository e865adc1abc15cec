"""`make docs`: docs/composition.md, from the features that tests/composition tries together.

What the page says is what the tests verify; nothing on it is written by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.composition.features import FEATURES, REFUSALS, Feature, sets_of
from tools import markdown as md

FILE = Path(__file__).parents[1] / "docs" / "composition.md"
MEND = "run `make docs`"
NOTE = "<!-- Built by `make docs` from tests/composition/features.py. -->"


def page() -> str:
    """The page."""
    same = [one for one in FEATURES if not one.changes]
    other = [one for one in FEATURES if one.changes]
    return md.join(
        NOTE,
        "# What goes together",
        "Every feature of this list has been tried beside every other, "
        f"{len(sets_of(2))} pairs in all (`make test-long`; `make test` tries some of them), and "
        "sets of three by chance. Two that give one field different values are no pair. Each pair "
        "is either refused, with the reason, or its answers are the right ones:",
        "- Of features that change no output they are those without them, to the bit: tokens, "
        "texts, ends and log-probabilities.\n"
        "- All others are what their definitions say: each token is the one that a plain "
        "computation in float64 takes, from the logits of Transformers after the same tokens and "
        "the numbers of (seed, position). Of int8, which Transformers does not have, only the "
        "first holds.\n"
        "- Without a seed the tokens of many requests also have the distribution of the model, by "
        "a chi-square test.",
        "Where one demands a token that another forbids, such as a choice and a bad word in it, "
        "the request ends with an error that says so (`finish_reason` is `error`). Nothing is left "
        "out without a word.",
        "## Refused together",
        md.table(
            ["features", "why"],
            [[" and ".join(sorted(one.names)), md.cell(one.why)] for one in REFUSALS],
        ),
        "## Features that change no output",
        _table(same),
        "## Features that do",
        _table(other),
    )


def _table(features: Sequence[Feature]) -> str:
    rows = [[one.name, _named(one.asks), _named(one.wanted)] for one in features]
    return md.table(["feature", "fields of `SamplingParams`", "options of `LLM`"], rows)


def _named(fields: Iterable[str]) -> str:
    return ", ".join(map(md.code, fields))


def stale() -> bool:
    """Whether the file is not what the list says."""
    return not FILE.exists() or FILE.read_text(encoding="utf-8") != page()


def main() -> None:
    """Write the page."""
    FILE.write_text(page(), encoding="utf-8")
    print(FILE, file=sys.stderr)


if __name__ == "__main__":
    main()
