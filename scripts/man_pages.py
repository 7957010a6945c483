"""Writes the manual pages and the completion scripts below share/: `python -m scripts.man_pages [--check]`.

What the code knows (commands, options, keys, defaults) comes from the code, the rest from docs/man/*.in. The
results are in the repository, so that a package can ship them without running anything.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hive_subagent_daemon import daemon_main, units_main
from hive_subagent_daemon.cli.addresses import address_options
from hive_subagent_daemon.cli.completion import script
from hive_subagent_daemon.cli.entry import ROOT
from hive_subagent_daemon.config_schema import KEYS, Computed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hive_subagent_daemon.config_schema import Key

REPOSITORY = Path(__file__).resolve().parents[1]
SHARE = REPOSITORY / "share"
TEMPLATES = REPOSITORY / "docs/man"
COMPLETIONS = {
    "bash": "bash-completion/completions/hive-subagent",
    "zsh": "zsh/site-functions/_hive-subagent",
    "fish": "fish/vendor_completions.d/hive-subagent.fish",
}
_SENTENCE = re.compile(r"\. (?=[A-Z])")


def escaped(text: str) -> str:
    """Return a text for the body of a page: copied from it, a dash is a dash."""
    # A sentence begins on a line of its own, so that roff knows how much space it wants.
    lines = _SENTENCE.sub(".\n", text.replace("\\", "\\e").replace("-", "\\-")).splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)


def paragraphs(text: str) -> str:
    """Return a help text of click's: what follows \b is left in its lines."""
    made = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        kept = paragraph.removeprefix("\b\n")
        if kept != paragraph:
            made.append(f".Bd -literal -offset indent\n{escaped(kept)}\n.Ed")
        else:
            made.append(escaped(" ".join(paragraph.split())))
    return "\n.Pp\n".join(made).replace(".Pp\n.Bd", ".Bd")  # a display has space before it anyway


def option_item(option: click.Option) -> str:
    """Return one option as an item of a list."""
    takes = f" Ar {option.metavar}" if option.metavar and not option.is_flag else ""
    flags = " , ".join(f"Fl {flag.removeprefix('-')}{takes}" for flag in option.opts)
    return f".It {escaped(flags)}\n{escaped(option.help or '')}"


def command_item(command: click.Command) -> str:
    """Return one command as an item: how it is called, what it does, its own options."""
    context = click.Context(command, info_name=command.name)
    ours = {option.name for option in address_options()}
    parameters = [
        each for each in command.get_params(context) if each.name not in ours and "--help" not in each.opts
    ]
    options = [each for each in parameters if isinstance(each, click.Option)]
    words = [f"Op Fl {each.opts[-1].removeprefix('-')}{_value(each)}" for each in options]
    words += [_argument(each, context) for each in parameters if isinstance(each, click.Argument)]
    call = "\n".join(f".{escaped(word)}" for word in [f"Ic {command.name}", *words])
    lines = [f".It Xo\n{call}\n.Xc", paragraphs(command.help or "")]
    if options:
        lines.append("\n".join([".Bl -tag -width Ds", *map(option_item, options), ".El"]))
    return "\n".join(lines)


def _value(option: click.Option) -> str:
    return "" if option.is_flag or not option.metavar else f" Ar {option.metavar}"


def _argument(argument: click.Argument, context: click.Context) -> str:
    shown = argument.make_metavar(context)
    name = shown.translate(dict.fromkeys(map(ord, "[]{}."))).replace("|", " | ")
    repeated = " ..." if argument.nargs == -1 else ""
    return f"Ar {name}{repeated}" if argument.required else f"Op Ar {name}{repeated}"


def argparse_items(parser: argparse.ArgumentParser) -> str:
    """Return the options of a parser as items, from its own help."""
    parser.formatter_class = partial(argparse.HelpFormatter, width=1000)  # each option on one line
    entries = help_entries(parser.format_help())
    return "\n".join(
        f".It {_flags(flags)}\n{escaped(meaning[:1].upper() + meaning[1:])}." for flags, meaning in entries
    )


def help_entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield each option in a help text of argparse, with its meaning; long flags have it on the next line."""
    flags = ""
    for line in text.splitlines():
        if line.startswith("  -"):
            flags, _, meaning = line.strip().partition("  ")
        else:
            meaning = line
        if flags and meaning.strip():
            yield flags, meaning.strip()
            flags = ""


def _flags(flags: str) -> str:
    each = []
    for flag in flags.split(", "):
        name, _, value = flag.partition(" ")
        each.append(f"Fl {name.removeprefix('-')}" + (f" Ar {value}" if value else ""))
    return escaped(" , ".join(each))


def key_sections() -> str:
    """Return all keys, in a section for each table."""
    sections: dict[str, list[Key]] = {}
    for key in KEYS:
        sections.setdefault(key.place[0] if len(key.place) > 1 else "", []).append(key)
    made = []
    for table, keys in sections.items():
        title = f".Ss The table [{table}]" if table else ".Ss The top level"
        made.append("\n".join([title, ".Bl -tag -width Ds", *map(_key_item, keys), ".El"]))
    return "\n".join(made)


def _key_item(key: Key) -> str:
    default = key.default
    if default is None:
        shown = "not set"
    elif isinstance(default, Computed):
        shown = default.words
    else:
        shown = str(default).lower() if isinstance(default, bool) else repr(default).replace("'", '"')
    flag = f" Flag: {key.flag}." if key.flag else ""
    lines = [f".It Li {escaped(key.place[-1])}", escaped(key.meaning)]
    lines += [escaped(f"Must be {key.kind.allowed}."), escaped(f"Default: {shown}.{flag}")]
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return everything that is generated, by its path below share/."""
    context = click.Context(ROOT)
    commands = [ROOT.get_command(context, name) for name in ROOT.list_commands(context)]
    options = [option for option in address_options() if isinstance(option, click.Option)]
    parts = {
        "@OPTIONS@": "\n".join(map(option_item, options)),
        "@COMMANDS@": "\n".join(command_item(command) for command in commands if command is not None),
        "@KEYS@": key_sections(),
        "@DAEMON_OPTIONS@": argparse_items(daemon_main.command_line()),
        "@UNITS_OPTIONS@": argparse_items(units_main.command_line()),
    }
    made = {Path(place): script(shell) for shell, place in COMPLETIONS.items()}
    for template in sorted(TEMPLATES.glob("*.in")):
        name = template.name.removesuffix(".in")
        made[Path(f"man/man{name[-1]}/{name}")] = _filled(template.read_text(encoding="utf-8"), parts)
    return made


def _filled(text: str, parts: Mapping[str, str]) -> str:
    for place, part in parts.items():
        text = text.replace(place, part)
    return text


def main() -> int:
    """Write everything that is not there as it should be; with --check only name it, and exit 1."""
    parser = argparse.ArgumentParser(description="Write manual pages and completion scripts below share/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when something is old")
    check = parser.parse_args().check
    old = []
    for place, text in pages().items():
        path = SHARE / place
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            old.append(place)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    for place in old:
        sys.stderr.write(f"{'old' if check else 'wrote'}: share/{place}\n")
    return 1 if check and old else 0


if __name__ == "__main__":
    sys.exit(main())
