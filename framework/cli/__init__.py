"""The command line.  `main` builds it when called; sub-commands import what they need."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `framework` script; an expected error is a message, not a trace."""
    import os
    import sys

    try:
        from framework.cli.streams import give_up, open_streams

        open_streams()
        try:
            status = _run()
            sys.stdout.flush()
        except OSError as error:
            give_up(error)
    except KeyboardInterrupt:
        os._exit(130)  # outside of all commands: there is nothing to tell and nothing to undo
    if status == 130:
        import signal

        # Whoever presses Ctrl-C again while the interpreter ends wants no trace of that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(status)


def _run() -> str | int | None:
    """The exit status of the command."""
    import sys

    from framework.errors import FrameworkError
    from framework.plugins.undecodable import readable_for_all

    try:
        readable_for_all()
        from framework.cli.app import build_app

        build_app()()
    except FrameworkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except SystemExit as end:
        return end.code
    return 0
