"""Make one instance of a plugin that is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from framework.contracts.base import Contract
from framework.errors import FrameworkError, PluginError
from framework.plugins.blame import of_plugin, told
from framework.plugins.handles import Journal
from framework.plugins.loading import how_to_mend, where
from framework.plugins.options import secrets_in, validate, without
from framework.plugins.records import Record, State


def make(
    record: Record, cls: type[Contract], given: Mapping[str, Any] | None, journal: Journal
) -> Contract:
    """A new instance with validated options.

    Raises PluginError for wrong options and for whatever the constructor raises, without the
    secrets among the options; what that has registered is then taken back.
    """
    options = validate(record, cls, given)
    try:
        with journal.transaction():
            instance = cls(options)
            # Past whatever __setattr__ the class may have.
            object.__setattr__(instance, "plugin_id", record.key)
    except BaseException as error:
        said = told(of_plugin(error))
        masked = without(said, secrets_in(cls.Options, given))
        if isinstance(error, FrameworkError) and masked == said:
            raise
        message = f"plugin {record.key} failed to start: {masked}"
        record.move(State.FAILED, message)
        raise PluginError(
            message,
            plugin=record.key,
            distribution=record.distribution,
            expected=f"{record.value} can be made with its options",
            found=f"{type(error).__name__} in {where(error)}",
            mend=how_to_mend(record),
        ) from (error if masked == said else None)  # a trace shows the text of the cause
    record.move(State.USED)
    return instance
