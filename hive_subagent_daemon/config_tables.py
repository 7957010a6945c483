"""Tables whose keys the user chooses, and the one that is added to the child's environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hive_subagent_daemon.config_checks import (
    FaultCollector,
    Kind,
    Places,
    must_be,
    nonempty_text,
    refusal,
    shown,
    text_of,
)
from hive_subagent_daemon.config_kinds import expanded
from hive_subagent_daemon.config_values import FileValue

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE_NAMES = "a variable name, not empty and without '='"
_SHELL_NAMES = "a variable name of letters, digits and '_' that does not begin with a digit"
_ENVIRONMENT_VALUE = 'a string or { file = "PATH" }'


def table_of(kind: Kind, *, names: str, is_name: Callable[[str], bool]) -> Kind:
    """Return the kind of tables with free key names of a certain form and values of one kind."""
    allowed = f"a table; each value {kind.allowed}"

    def _read(value: object, places: Places) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise must_be(value, allowed)
        faults = FaultCollector()
        found = {}
        for name, each in value.items():
            if not is_name(name):
                faults.add(f"the name must be {names}", where=(name,))
            found[name] = faults.read(kind, each, places=places, where=(name,))
        faults.finish()
        return found

    return Kind(allowed, _read, lambda table: {name: kind.write(each) for name, each in table.items()})


def _plain_text(value: object, _places: Places) -> str:
    return text_of(value, "a string")


def plain_text() -> Kind:
    """Return the kind of strings, empty ones included."""
    return Kind("a string", _plain_text)


def is_variable_name(name: str) -> bool:
    """Tell whether an environment can hold a variable of this name."""
    return name != "" and "=" not in name and "\0" not in name


def _passes_a_shell(name: str) -> bool:
    """Tell whether a variable of this name reaches a turn: it is handed on by the gate, which is a shell."""
    return name.isascii() and name.isidentifier()


def _environment_value(value: object, places: Places) -> str | FileValue:
    if not isinstance(value, dict):
        return text_of(value, _ENVIRONMENT_VALUE)
    if set(value) != {"file"}:
        reason = f"must be {_ENVIRONMENT_VALUE}, not a table with other keys"
        raise refusal(reason)
    path = expanded(nonempty_text(value["file"], "the path of a file"), places)
    if not path.is_absolute():
        reason = f"file must be an absolute path, not {shown(value['file'])}"
        raise refusal(reason)
    return FileValue(path)


def _written_environment_value(value: str | FileValue) -> object:
    return value if isinstance(value, str) else {"file": str(value.path)}


def environment() -> Kind:
    """Return the kind of what is added to the child's environment: text, or a file that holds the text."""
    value = Kind(_ENVIRONMENT_VALUE, _environment_value, _written_environment_value)
    return table_of(value, names=_SHELL_NAMES, is_name=_passes_a_shell)
