"""The command line.  `main` builds it when called; sub-commands import what they need."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `framework` script; an expected error is a message, not a trace."""
    import os
    import sys

    from framework.cli.app import build_app
    from framework.errors import FrameworkError

    try:
        build_app()()
    except FrameworkError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        # The reader of a pipe left; nothing more can be told, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
