"""The command `hive-subagent-daemon units`: unit files for systemd, filled in."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hive_subagent_daemon.config import Flags, load_config
from hive_subagent_daemon.errors import ConfigError
from hive_subagent_daemon.unit_files import (
    Account,
    UnitFile,
    UnitFiles,
    UnitFilesError,
    Wanted,
    system_units,
    user_units,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hive_subagent_daemon.config import Config

_PROGRAM: Final = "hive-subagent-daemon"
_USUAL_FOLDERS: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EPILOG: Final = (
    "Addresses, the agent's name and allow_root come from the configuration that the daemon will find, where "
    "no flag is given. Nothing is started: the files say what to do next."
)


def main(argv: Sequence[str]) -> int:
    """Print or write the unit files; return the exit code (1: not possible, 2: configuration or usage)."""
    arguments = _parsed(argv)
    try:
        made = _made(arguments, program=_program_path(sys.argv[0]))
        if arguments.output is None:
            print("\n".join(each.text for each in made.files), end="")
        else:
            _write(made, arguments.output, force=arguments.force)
    except ConfigError as error:
        return _failed(str(error), 2)
    except UnitFilesError as error:
        return _failed(str(error), 1)
    return 0


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    parser = command_line()
    arguments = parser.parse_args(argv)
    if arguments.user and arguments.run_as is not None:
        parser.error("--run-as is for --system: a user's own manager runs everything as that user")
    if arguments.system and not (arguments.run_as or arguments.agent):
        parser.error("--system needs --run-as USER, or --agent NAME when the user is named as the agent")
    if arguments.force and arguments.output is None:
        parser.error("--force is for --output")
    return arguments


def command_line() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog=f"{_PROGRAM} units",
        description="Print the unit files, socket and service, that run the daemon under systemd.",
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    manager = parser.add_mutually_exclusive_group(required=True)
    manager.add_argument("--user", action="store_true", help="for your own service manager")
    manager.add_argument(
        "--system", action="store_true", help="for the system's manager, one pair for each agent"
    )
    parser.add_argument(
        "--agent",
        metavar="NAME",
        help="name of the parent, 1 to 63 printable characters without '/'; part of the unit names (user: "
        "only if given)",
    )
    parser.add_argument(
        "--run-as", metavar="USER", help="with --system: the user it runs as (default: named as the agent)"
    )
    parser.add_argument(
        "--listen", action="append", default=[], metavar="ADDRESS", help="HOST:PORT or unix:PATH; repeatable"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration that the daemon reads")
    parser.add_argument("--work-dir", metavar="DIR", help="working directory of turns that name none")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write the files into DIR, do not print")
    parser.add_argument("--force", action="store_true", help="with --output: replace files that differ")
    return parser


def _made(arguments: argparse.Namespace, *, program: Path) -> UnitFiles:
    entry = _user_entry(arguments)
    config = _configuration(arguments, entry)
    own = entry.pw_uid == os.getuid()
    wanted = Wanted(
        account=Account(entry.pw_name, entry.pw_uid),
        program=program,
        listen=config.listen,
        path=_path_of_turns(entry.pw_dir, os.environ if own else {}),
        agent=config.agent if arguments.system else arguments.agent,
        config_file=arguments.config and arguments.config.absolute(),
        work_dir=config.work_dir if arguments.work_dir is not None else None,
    )
    made = user_units(wanted) if arguments.user else system_units(wanted)
    if entry.pw_uid == 0 and not config.allow_root:
        _warn("as root it will not start without allow_root = true in the configuration")
    closed = None if own else _closed_to(entry, program)
    if closed is not None:
        _warn(
            f"{entry.pw_name} cannot reach {closed}, where the program is: install it where all users can "
            "read it, below /opt or /usr/local for instance"
        )
    return made


def _user_entry(arguments: argparse.Namespace) -> pwd.struct_passwd:
    """Return the user that the daemon is to run as; raises UnitFilesError when there is none."""
    name: str | int = os.getuid() if arguments.user else arguments.run_as or arguments.agent
    try:
        return pwd.getpwuid(name) if isinstance(name, int) else pwd.getpwnam(name)
    except (KeyError, ValueError) as error:  # ValueError: a NUL in it
        message = (
            f"there is no user {name!r} on this machine: make it first, or name one with --run-as. The uid "
            "has to stand in the units."
        )
        raise UnitFilesError(message) from error


def _configuration(arguments: argparse.Namespace, entry: pwd.struct_passwd) -> Config:
    """Return what the daemon will find: the managers hand it the home, but nothing of this shell."""
    return load_config(
        config_file=arguments.config,
        flags=Flags(
            listen=tuple(arguments.listen),
            agent=arguments.agent,
            work_dir=arguments.work_dir,
        ),
        environ={},
        cwd=_working_directory(),
        user_name=entry.pw_name,
        home=Path(entry.pw_dir),
    )


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        message = "this working directory does not exist any more: change to another one."
        raise UnitFilesError(message) from error


def _path_of_turns(home: str, environ: Mapping[str, str]) -> str:
    """Return the PATH of the shell that asks, where it is the user's own; else the usual folders.

    A user's manager seldom knows the folders that the user's shell adds, and claude is often in one of them.
    """
    absolute = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    return ":".join(dict.fromkeys(absolute)) or f"{home}/.local/bin:{_USUAL_FOLDERS}"


def _program_path(called: str) -> Path:
    """Return the absolute path of the daemon's program: as called, beside this interpreter, or in PATH.

    Symbolic links stay: they are what survives an upgrade.
    """
    ways: list[tuple[str, str | None]] = [(called, None)] if Path(called).name == _PROGRAM else []
    ways += [(_PROGRAM, str(Path(sys.executable).parent)), (_PROGRAM, None)]
    found = (shutil.which(name, path=path) for name, path in ways)
    program = next(filter(None, found), None)
    if program is None:
        message = f"the program {_PROGRAM} was found neither beside {sys.executable} nor in PATH: install it."
        raise UnitFilesError(message)
    return Path(program).absolute()


def _closed_to(entry: pwd.struct_passwd, program: Path) -> Path | None:
    """Return the first folder or file on the way to the program that the user may not pass or execute."""
    groups = set(os.getgrouplist(entry.pw_name, entry.pw_gid))
    interpreter = Path(sys.executable)
    for way in (program, program.resolve(), interpreter, interpreter.resolve()):
        for each in (*reversed(way.parents), way):
            status = each.stat()
            shift = 6 if status.st_uid == entry.pw_uid else 3 if status.st_gid in groups else 0
            if entry.pw_uid != 0 and not status.st_mode >> shift & 1:
                return each
    return None


def _write(made: UnitFiles, folder: Path, *, force: bool) -> None:
    """Write all the files, or none when one that is there differs and is not to be replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = {file: _content(folder / file.name) for file in made.files}
        different = [folder / file.name for file, text in there.items() if text not in (None, file.text)]
        if different and not force:
            names = ", ".join(map(str, different))
            message = f"there already, and different: {names}. Compare, then repeat with --force."
            raise UnitFilesError(message)
        for file, text in there.items():
            if text != file.text:
                _replace(folder, file)
            print(f"{'unchanged' if text == file.text else 'wrote'} {folder / file.name}")
    except OSError as error:
        message = f"cannot write into {folder}: {error.strerror} ({error.filename})"
        raise UnitFilesError(message) from error
    print("\n".join(["next:", *(f"  {command}" for command in made.commands)]))


def _content(path: Path) -> str | None:
    """Return what is in a file; None when nothing is there, not even a symbolic link."""
    if path.is_symlink():
        return f"-> {path.readlink()}"  # masked, or kept elsewhere: that is different from ours
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None


def _replace(folder: Path, file: UnitFile) -> None:
    """Replace a file in one step: a link is not written through."""
    partial = folder / f".{file.name}.partial"
    partial.write_text(file.text, encoding="utf-8")
    partial.chmod(0o644)
    partial.replace(folder / file.name)


def _warn(text: str) -> None:
    print(f"{_PROGRAM}: {text}", file=sys.stderr)


def _failed(text: str, code: int) -> int:
    _warn(text)
    return code
