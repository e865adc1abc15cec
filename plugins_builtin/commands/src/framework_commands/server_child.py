"""`framework`, as it is started by another program with which it ends."""

from __future__ import annotations

from framework.plugins.tied import hold_on

if __name__ == "__main__":
    hold_on()
    from framework.cli import main

    main()
