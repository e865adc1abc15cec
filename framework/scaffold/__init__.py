"""What `framework plugins new` writes: a distribution whose tests pass at once."""

from framework.scaffold.names import Names, check_names
from framework.scaffold.render import plugin_source, render
from framework.scaffold.write import write

__all__ = ["Names", "check_names", "plugin_source", "render", "write"]
