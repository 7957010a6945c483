"""The command `hive-subagent-daemon`."""

from __future__ import annotations

import gc

# What the imports make stays; looking through it for garbage took a tenth of the time to the first answer.
gc.disable()

import argparse
import os
import pwd
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from typing_extensions import override

from hive_subagent_daemon import __version__, log, units_main
from hive_subagent_daemon.commit import version_text
from hive_subagent_daemon.config import Config, Flags, effective, load_config
from hive_subagent_daemon.daemon import run
from hive_subagent_daemon.errors import ConfigError, StartUpError
from hive_subagent_daemon.notify import Notifier
from hive_subagent_daemon.passed_sockets import passed_sockets

if TYPE_CHECKING:
    from collections.abc import Sequence

gc.freeze()
gc.enable()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon, `--check` or `units`; return the code (1: cannot serve, 2: configuration or usage)."""
    words = sys.argv[1:] if argv is None else argv
    if words and words[0] == "units":
        return units_main.main(words[1:])
    arguments = command_line().parse_args(words)
    try:
        load = partial(
            load_config,
            config_file=arguments.config,
            flags=_flags(arguments),
            environ=dict(os.environ),
            cwd=_working_directory(),
            user_name=_user_name(),
            home=_home(),
        )
        config = load()
        if arguments.check:
            print(effective(config), end="")
            if os.getuid() == 0 and not config.allow_root:
                print(
                    "hive-subagent-daemon: as root it will not start without allow_root = true",
                    file=sys.stderr,
                )
            return 0
        return _run(config, load)
    except ConfigError as error:
        print(f"hive-subagent-daemon: {error}", file=sys.stderr)
        return 2
    except StartUpError as error:
        print(f"hive-subagent-daemon: {error}", file=sys.stderr)
        return 1


def _run(config: Config, load: partial[Config]) -> int:
    log.set_up(config.log_level, agent=config.agent)
    _listen_to_signals()
    # What systemd has passed is taken before there is any thread or child that could inherit it.
    passed = passed_sockets(reachable=config.auth.token_file is not None)
    notifier = Notifier()
    serve = partial(
        run,
        config,
        user_name=_user_name(),
        environ=dict(os.environ),
        reload=load,
        notifier=notifier,
        passed=passed,
    )
    anyio.run(serve, backend="asyncio")
    return 0


def _listen_to_signals() -> None:
    """Undo what a shell script that started us in the background has set: ignored signals, a mask."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def command_line() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog="hive-subagent-daemon",
        description="Hands bounded work to headless claude processes over MCP and tells how each ended.",
        epilog="To run it under systemd: `%(prog)s units --help`.",
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration (TOML)")
    parser.add_argument(
        "--check", action="store_true", help="check the configuration, print it in effect, and end"
    )
    parser.add_argument(
        "--listen", action="append", default=[], metavar="ADDRESS", help="HOST:PORT or unix:PATH"
    )
    parser.add_argument("--claude", metavar="PROGRAM", help="path or name of the claude program")
    parser.add_argument("--work-dir", metavar="DIR", help="working directory of turns that name none")
    parser.add_argument("--state-dir", metavar="DIR", help="where records and loose ends are kept")
    parser.add_argument("--agent", metavar="NAME", help="name of the parent")
    parser.add_argument("--on-restart", metavar="stop", help="what becomes of running turns")
    parser.add_argument("--scopes", metavar="auto|user|system|off", help="which manager makes the scopes")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and its commit")
    return parser


class ShowVersion(argparse.Action):
    """Prints version and commit, and ends; git is asked only now."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"{parser.prog} {version_text(__version__)}")
        parser.exit()


def _flags(arguments: argparse.Namespace) -> Flags:
    return Flags(
        listen=tuple(arguments.listen),
        claude=arguments.claude,
        work_dir=arguments.work_dir,
        state_dir=arguments.state_dir,
        agent=arguments.agent,
        on_restart=arguments.on_restart,
        scopes=arguments.scopes,
        log_level=arguments.log_level,
    )


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        message = "the working directory of the daemon does not exist any more: start it from another one."
        raise StartUpError(message) from error


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _home() -> Path:
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/")


if __name__ == "__main__":
    sys.exit(main())
