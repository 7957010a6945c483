"""Where claude keeps its sessions: config directory and project folders, as measured with it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hive_subagent_daemon.claude_store import ClaudeStore, project_slug

SIXTY = "abcdefghij" * 6
DEEP = f"/tmp/slug/{SIXTY}/{SIXTY}/{SIXTY}"
DEEP_SLUG = f"-tmp-slug-{SIXTY}-{SIXTY}-{SIXTY}"
MIDDLE = f"/tmp/slug/{SIXTY}/{SIXTY}/abcdefghijabcdefgh"
MIDDLE_SLUG = f"-tmp-slug-{SIXTY}-{SIXTY}-abcdefghijabcdefgh"

# Folder names that claude 2.1.150, 2.1.197 and 2.1.332 made (those with a combining accent: not 2.1.150).
MEASURED_SLUGS = [
    ("/tmp/slug/..x..y-_", "-tmp-slug---x--y--"),
    ("/tmp/slug/a\nb", "-tmp-slug-a-b"),
    ("/tmp/slug/\u00fcn\u00ef_c\u00f6d\u00e9.x y", "-tmp-slug--n--c-d--x-y"),
    ("/tmp/slug/a\U0001f600b", "-tmp-slug-a--b"),
    ("/tmp/slug/\u6f22\u5b57", "-tmp-slug---"),
    ("/tmp/slug/e\u0301x", "-tmp-slug-e-x"),
    ("/tmp/slug/\u00e9x", "-tmp-slug--x"),
    ("/tmp/slug/\uff21\uff19\u017fK", "-tmp-slug----K"),
    (f"{DEEP}/abcdef", f"{DEEP_SLUG}-abcdef"),
    (f"{DEEP}/abcdefg", f"{DEEP_SLUG}-abcdefg"),  # 200 characters
    (f"{DEEP}/abcdefgh", f"{DEEP_SLUG}-abcdefg-zclhfc"),
    (f"{DEEP}/abcdefghi", f"{DEEP_SLUG}-abcdefg-udt6nl"),
    (f"{DEEP}/{SIXTY[:57]}", f"{DEEP_SLUG}-abcdefg-ug5ofd"),
    ("/tmp/slug" + f"/{SIXTY}" * 14 + f"/{SIXTY[:36]}", f"{DEEP_SLUG}-abcdefg-hq4bn5"),
    (f"{DEEP}/abcde/\U0001f600tail", f"{DEEP_SLUG}-abcde---lysl77"),  # cut in the middle of a character
    (f"{MIDDLE}/" + "\u00fc" * 60, MIDDLE_SLUG + "-" * 50 + "-qxfzpl"),
    (f"{MIDDLE}/" + "\U0001f600" * 30, MIDDLE_SLUG + "-" * 50 + "-koggyr"),
]


@pytest.mark.parametrize(("path", "slug"), MEASURED_SLUGS)
def test_a_directory_has_the_folder_that_claude_makes_for_it(path: str, slug: str) -> None:
    """A start that looks in the wrong folder archives nothing."""
    assert project_slug(path) == slug


def units(text: str) -> list[int]:
    """Return the UTF-16 units of a text: a plain reference."""
    found = []
    for character in text:
        point = ord(character)
        astral = point - 0x10000
        found += [point] if astral < 0 else [0xD800 + (astral >> 10), 0xDC00 + (astral & 0x3FF)]
    return found


def javascript_hash(text: str) -> int:
    """Return `h = (h << 5) - h + unit | 0` over the units, its absolute value: a plain reference."""
    total = 0
    for unit in units(text):
        shifted = (total << 5) & 0xFFFFFFFF
        shifted -= (shifted & 0x80000000) << 1
        total = (shifted - total + unit) & 0xFFFFFFFF
        total -= (total & 0x80000000) << 1
    return abs(total)


TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=60)


@given(st.lists(TEXTS, max_size=12).map("/".join))
def test_any_path_has_a_slug_of_kept_letters_dashes_and_perhaps_a_hash(path: str) -> None:
    """Astral characters count twice, lone surrogates (bytes that are not UTF-8) once."""
    kept = [chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units(path)]
    slug = project_slug(path)
    assert slug[:200] == "".join(kept[:200])
    if len(kept) <= 200:
        assert len(slug) == len(kept)
    else:
        assert slug[200] == "-"
        assert int(slug[201:], 36) == javascript_hash(path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/tmp/h"}, "/tmp/h/.claude"),
        ({"HOME": "/tmp/h", "CLAUDE_CONFIG_DIR": "/tmp/c"}, "/tmp/c"),
        ({"HOME": "/tmp/h", "CLAUDE_CONFIG_DIR": "/tmp/c/"}, "/tmp/c"),
        ({"HOME": "/tmp/h", "CLAUDE_CONFIG_DIR": ""}, "."),
        ({"HOME": "/tmp/h", "CLAUDE_CONFIG_DIR": "rel/c"}, "rel/c"),
        ({"HOME": "/tmp/h", "CLAUDE_CONFIG_DIR": "~/c"}, "~/c"),
        ({"HOME": "/tmp/e\u0301"}, "/tmp/\u00e9/.claude"),
        ({"HOME": "/tmp/h", "CLAUDE_CONFIG_DIR": "/tmp/e\u0301"}, "/tmp/\u00e9"),
        ({"HOME": ""}, f"{pwd.getpwuid(os.getuid()).pw_dir}/.claude"),
        ({}, f"{pwd.getpwuid(os.getuid()).pw_dir}/.claude"),
    ],
)
def test_the_config_directory_follows_the_environment_of_the_child(
    environment: dict[str, str], expected: str
) -> None:
    """Measured; the only Unicode normalization is here."""
    assert ClaudeStore(environment).config_dir == Path(expected)


def test_a_relative_config_directory_lies_below_the_directory_of_the_child(tmp_path: Path) -> None:
    """An empty one is that directory itself (measured)."""
    work = tmp_path / "work"
    work.mkdir()
    slug = project_slug(os.path.realpath(work))
    relative = ClaudeStore({"CLAUDE_CONFIG_DIR": "conf"})
    empty = ClaudeStore({"CLAUDE_CONFIG_DIR": ""})
    assert relative.project_folder(work) == work / "conf" / "projects" / slug
    assert empty.project_folder(work) == work / "projects" / slug


def test_a_symbolic_link_leads_to_the_folder_of_the_real_directory(tmp_path: Path) -> None:
    """claude takes getcwd(), not PWD."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    store = ClaudeStore({"HOME": str(tmp_path)})
    assert store.project_folder(link) == store.project_folder(real)
    assert store.project_folder(link).name == project_slug(str(real))


# Measured with 2.1.332; 2.1.197 does not know the variable and never makes that folder.
@pytest.mark.parametrize(
    ("chosen", "used"),
    [("pn", True), ("p_n-9", True), ("x" * 64, True), ("nulx", True)]
    + [(bad, False) for bad in ("", "p.n", " pn", "\u00e9", "x" * 65, "nul", "CON", "com1", "..", "/tmp")],
)
def test_a_chosen_project_folder_is_used_when_claude_takes_it(
    tmp_path: Path, chosen: str, used: bool
) -> None:
    """Only beside CLAUDE_CONFIG_DIR, and only when the folder is there."""
    choice = {"HOME": str(tmp_path), "CLAUDE_CODE_PROJECT_DIR_NAME": chosen}
    store = ClaudeStore({**choice, "CLAUDE_CONFIG_DIR": str(tmp_path / "c")})
    slug = project_slug(os.path.realpath(tmp_path))
    assert store.project_folder(tmp_path).name == slug
    for config_dir in ("c", ".claude"):
        (tmp_path / config_dir / "projects" / (chosen or slug)).mkdir(parents=True, exist_ok=True)
    assert store.project_folder(tmp_path).name == (chosen if used else slug)
    assert ClaudeStore(choice).project_folder(tmp_path).name == slug
