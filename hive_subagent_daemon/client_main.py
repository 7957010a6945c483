"""The command `hive-subagent`: the daemon's tools for people.

Exit codes: 0 done, 1 refused or failed, 2 bad usage, 3 daemon not reachable. What a subagent wrote is
printed without control characters, so that it cannot talk to the terminal.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hive_subagent_daemon import __version__, bridge_main, notices_main
from hive_subagent_daemon.client import (
    EXAMPLE_URL,
    TOKEN_FILE_VARIABLE,
    URL_VARIABLE,
    AddressError,
    Endpoint,
    ToolAnswer,
    UnreachableError,
    call_tool,
)
from hive_subagent_daemon.client_options import chosen_endpoint
from hive_subagent_daemon.errors import RefusedError, SubagentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_PROMPT_BYTES = 10_000_000
"""The daemon takes no more, so nothing beyond is read from stdin."""
MOST_AT_ONCE = 100
"""Most loose ends that one call of a tool takes."""

DONE, REFUSED, BAD_USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130

_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if notices_main.is_meant(words):
        return notices_main.main(words)
    if words[:1] == ["mcp"]:
        return bridge_main.main(words[1:])
    arguments = _parser().parse_args(words)
    try:
        arguments.command.run(_endpoint(arguments), arguments)
    except AddressError as error:
        return _failed(error, BAD_USAGE)
    except UnreachableError as error:
        return _failed(error, UNREACHABLE)
    except RefusedError as error:
        return _failed(error, REFUSED)
    except BrokenPipeError:
        # The reader has gone; the interpreter would try to flush once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return DONE


@dataclass(frozen=True)
class Command:
    """One command: what it does, in words and in code, and the arguments that it takes."""

    summary: str
    run: Callable[[Endpoint, argparse.Namespace], None]
    add_arguments: Callable[[argparse.ArgumentParser], None]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hive-subagent", description="Work with the subagents of a daemon.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=__version__)
    _add_endpoint(parser, default=None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = commands.add_parser(
            name, help=command.summary, description=f"{command.summary.capitalize()}.", allow_abbrev=False
        )
        _add_endpoint(one, default=argparse.SUPPRESS)
        command.add_arguments(one)
        one.set_defaults(command=command)
    return parser


def _add_endpoint(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    """Take the address before and after the command; the default of the second must not undo the first."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--url", default=default, help=f"address of the daemon (default: ${URL_VARIABLE}, else {EXAMPLE_URL})"
    )
    where.add_argument("--socket", metavar="PATH", default=default, help="Unix socket of the daemon")
    parser.add_argument(
        "--token-file",
        metavar="PATH",
        default=default,
        help=f"file with the daemon's token (default: ${TOKEN_FILE_VARIABLE}, else no token)",
    )


def _endpoint(arguments: argparse.Namespace) -> Endpoint:
    return chosen_endpoint(
        url=arguments.url,
        socket_path=arguments.socket,
        token_file=arguments.token_file,
        environ=os.environ,
    )


def _given(**arguments: str | None) -> dict[str, str]:
    """Return the arguments that were given; the daemon has the defaults."""
    return {name: value for name, value in arguments.items() if value is not None}


def _absolute(path: str | None) -> str | None:
    """Make a path absolute: the daemon has another working directory than the person who types it."""
    return str(Path(path).absolute()) if path else path


def _start_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "prompt_file",
        metavar="PROMPT_FILE",
        help="file with its instructions; a relative path starts at the shell's directory",
    )
    parser.add_argument("--model", help="model for claude")
    parser.add_argument("--trigger", help="first prompt, instead of the default one")
    parser.add_argument("--dir", help="working directory (default: the one the daemon is configured with)")


def _start(endpoint: Endpoint, arguments: argparse.Namespace) -> None:
    given = _given(
        name=arguments.name,
        prompt_file=_absolute(arguments.prompt_file),
        model=arguments.model,
        trigger=arguments.trigger,
        dir=_absolute(arguments.dir),
    )
    _print(call_tool(endpoint, "start", given).text)


def _continue_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", default="-", help="text; - or absent: stdin")
    parser.add_argument("--model", help="model for claude (default: the remembered one)")
    parser.add_argument("--dir", help="working directory (default: the remembered one)")


def _continue(endpoint: Endpoint, arguments: argparse.Namespace) -> None:
    prompt = _read_prompt() if arguments.prompt == "-" else arguments.prompt
    given = _given(name=arguments.name, prompt=prompt, model=arguments.model, dir=_absolute(arguments.dir))
    _print(call_tool(endpoint, "continue", given).text)


def _read_prompt() -> str:
    if sys.stdin.isatty():
        print("Type the prompt, then Ctrl-D:", file=sys.stderr)
    prompt = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(prompt) > MAX_PROMPT_BYTES:
        message = f"stdin has more than {MAX_PROMPT_BYTES} bytes: put the material in a file and name that."
        raise RefusedError(message)
    try:
        return prompt.decode()
    except UnicodeDecodeError as error:
        message = f"stdin is not valid UTF-8 at byte {error.start}: convert the prompt first."
        raise RefusedError(message) from None


def _interrupt_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--force", action="store_true", help="kill all its processes at once")


def _interrupt(endpoint: Endpoint, arguments: argparse.Namespace) -> None:
    given = {"name": arguments.name, "force": arguments.force}
    _print(call_tool(endpoint, "interrupt", given).text)


def _status_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _status(endpoint: Endpoint, arguments: argparse.Namespace) -> None:
    _print_answer(call_tool(endpoint, "status", _given(name=arguments.name)), as_json=arguments.json)


def _loose_ends_arguments(parser: argparse.ArgumentParser) -> None:
    closing = parser.add_mutually_exclusive_group()
    closing.add_argument("--close", metavar="ID", nargs="+", help="close these")
    closing.add_argument("--close-all", action="store_true", help="show all that are open, and close them")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _loose_ends(endpoint: Endpoint, arguments: argparse.Namespace) -> None:
    if arguments.close_all:
        _close_all(endpoint, as_json=arguments.json)
        return
    if arguments.close is None:
        answer = call_tool(endpoint, "get_loose_ends", {"limit": MOST_AT_ONCE})
    else:
        answer = call_tool(endpoint, "close_loose_ends", {"ids": arguments.close})
    _print_answer(answer, as_json=arguments.json)
    if unknown := answer.structured.get("unknown"):
        message = f"no loose end has the id {', '.join(unknown)}."
        raise RefusedError(message)


def _close_all(endpoint: Endpoint, *, as_json: bool) -> None:
    """Close what is open now, and print it even if that stops half way: nothing may be closed unseen."""
    closed: list[dict[str, Any]] = []
    try:
        for answer in _open_at_present(endpoint):
            if not as_json:
                _print(answer.text + "\n")
            loose_ends = answer.structured["loose_ends"]
            call_tool(endpoint, "close_loose_ends", {"ids": [loose_end["id"] for loose_end in loose_ends]})
            closed += loose_ends
    finally:
        _print(json.dumps({"closed": closed}, indent=2) if as_json else f"Closed {len(closed)} loose ends.")


def _open_at_present(endpoint: Endpoint) -> Iterator[ToolAnswer]:
    """Yield the open loose ends in portions, each of which is to be closed before the next is asked for.

    They come oldest first, so those that come up meanwhile are the last, and stay open.
    """
    answer = call_tool(endpoint, "get_loose_ends", {"limit": MOST_AT_ONCE})
    left = len(answer.structured["loose_ends"]) + answer.structured["remaining"]
    while shown := len(answer.structured["loose_ends"]):
        yield answer
        left -= shown
        if left <= 0:
            return
        answer = call_tool(endpoint, "get_loose_ends", {"limit": min(MOST_AT_ONCE, left)})


def _mcp(endpoint: Endpoint, _arguments: argparse.Namespace) -> None:
    bridge_main.run(endpoint)


def _no_arguments(_parser: argparse.ArgumentParser) -> None:
    pass


COMMANDS = {
    "start": Command("start a subagent in the background", _start, _start_arguments),
    "continue": Command("give a subagent another turn", _continue, _continue_arguments),
    "interrupt": Command("stop the running turn of a subagent", _interrupt, _interrupt_arguments),
    "status": Command("show what subagents are doing", _status, _status_arguments),
    "mcp": Command(bridge_main.SUMMARY, _mcp, _no_arguments),
    "loose-ends": Command("show or close the notices of ended turns", _loose_ends, _loose_ends_arguments),
}


def _print_answer(answer: ToolAnswer, *, as_json: bool) -> None:
    _print(json.dumps(answer.structured, indent=2) if as_json else answer.text)


def _print(text: str) -> None:
    """Print to stdout whatever its encoding is, without control characters."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    print(text.translate(_CONTROL), flush=True)


def _failed(error: SubagentError, code: int) -> int:
    print(f"hive-subagent: {str(error).translate(_CONTROL)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
