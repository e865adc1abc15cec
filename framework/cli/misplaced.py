"""Options of every command stand before it: whoever writes one behind it is told so."""

from __future__ import annotations

ROOT_FLAGS = {
    "--no-plugins": "",
    "--plugin": "KIND:NAME=MODULE:ATTR",
    "--plugin-option": "KIND.NAME.KEY=VALUE",
    "--frozen": "",
    "--lock-file": "FILE",
    "--verbose": "",
    "-v": "",
    "--version": "",
}
"""Flag -> what it takes."""


def place_of(flag: str, command: str) -> str | None:
    """Where the flag belongs; None for one that is no option of every command.

    command: the words of the one behind which it stood, without the program's name.
    """
    name = flag.partition("=")[0]
    if name not in ROOT_FLAGS:
        return None
    words = " ".join(filter(None, ("framework", name, ROOT_FLAGS[name], command)))
    return f"options of every command stand before it: {words}"


def tell_place(error: Exception) -> None:
    """Add it to typer's error about an option that a command has not; to others nothing.

    The class of such errors is no public name of typer, so that they are known by what they hold.
    """
    context = getattr(error, "ctx", None)
    flag = str(getattr(error, "option_name", ""))
    if context is None or not hasattr(error, "message"):
        return
    command = str(context.command_path).partition(" ")[2]
    if place := place_of(flag, command):
        error.message = f"{error.message}; {place}"
