"""`python -m framework`."""

from framework.cli import main

main()
