"""The command line.  `main` builds it when called; sub-commands import what they need."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `framework` script; an expected error is a message, not a trace."""
    import sys

    from framework.cli.app import build_app
    from framework.errors import FrameworkError

    try:
        build_app()()
    except FrameworkError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
