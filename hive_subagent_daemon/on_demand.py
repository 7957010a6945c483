"""Functions whose module is imported at their first call: what nobody asks for costs no start and no memory.

For what few daemons need and what drags much along (measured: jinja2 14 ms and 1.5 MiB, prometheus-client
9 ms and 0.8 MiB, of the 52 MiB of an idle daemon). The first call belongs into a worker
thread: an import reads files.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, Generic, ParamSpec, TypeVar, cast

ArgumentsP = ParamSpec("ArgumentsP")
ResultT = TypeVar("ResultT")


class OnDemand(Generic[ArgumentsP, ResultT]):
    """Stands for a function of a module of this package that is not imported yet."""

    def __init__(self, module: str, name: str) -> None:
        """Stand for `name` of the module `module` in this package."""
        self.module: Final = f"{__package__}.{module}"
        self.name: Final = name

    def __call__(self, *arguments: ArgumentsP.args, **named: ArgumentsP.kwargs) -> ResultT:
        """Import the module, unless that is done, and call the function. Blocks; raises what that raises."""
        return cast("ResultT", getattr(import_module(self.module), self.name)(*arguments, **named))
