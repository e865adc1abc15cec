"""A command: how many tokens a text is.  No weights are loaded."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from framework.contracts.command import Command

if TYPE_CHECKING:
    from framework.contracts.command import Call


class CountTokens(Command):
    """Counts with the tokenizer of a model."""

    def run(self, call: Call) -> int:
        parser = argparse.ArgumentParser(call.program, description="How many tokens a text is.")
        parser.add_argument("text", nargs="?", help="default: what stdin has")
        parser.add_argument("--model", "-m", help="an alias, a folder, a file or a hub id")
        try:
            flags = parser.parse_args(call.arguments)
        except SystemExit as end:
            return int(end.code or 0)
        model = call.resolve({"model": flags.model, "load_format": "dummy"}).config.model
        from framework.engine.model_files import find_model, load_tokenizer

        registry = call.registry()
        tokenizer = load_tokenizer(registry, model, find_model(registry, model))
        print(len(tokenizer.encode(sys.stdin.read() if flags.text is None else flags.text)))
        return 0
