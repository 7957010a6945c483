"""What claude takes for a session's title; the rows are what claude did with `--resume TITLE` (measured)."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hive_subagent_daemon.transcript_titles import END_BYTES, normalized, titles_in

SID = "5f0c1ad2-86b7-4a0e-9d8b-1c7b3a4e2f60"
END = f',"sessionId":"{SID}"}}'
USER = '{"parentUuid":null,"isSidechain":false,"type":"user","message":{"content":"hi"},"cwd":"/tmp"}'


def custom(title: str) -> str:
    """Return claude's record of a title given by `--name` or a rename."""
    record = {"type": "custom-title", "customTitle": title, "sessionId": SID}
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def generated(title: str) -> str:
    """Return claude's record of a title it made up."""
    return json.dumps({"type": "ai-title", "aiTitle": title, "sessionId": SID}, separators=(",", ":"))


def user(**further: object) -> str:
    """Return a message record with further fields."""
    return json.dumps({**json.loads(USER), **further}, separators=(",", ":"))


def filler(kibibytes: int) -> str:
    """Return whole message records of about this size."""
    line = user(message={"role": "user", "content": "x" * 900})
    return "\n".join([line] * (kibibytes * 1024 // len(line)))


def ends(content: bytes) -> tuple[bytes, ...]:
    """Cut a transcript's two ends as they are read from a file."""
    return (content,) if len(content) <= END_BYTES else (content[-END_BYTES:], content[:END_BYTES])


def found(title: str, *lines: str) -> bool:
    """Tell whether a transcript of these lines is found under the title."""
    content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    return normalized(title) in titles_in(ends(content))


FAR = filler(300)
# What, title asked for, lines, whether claude 2.1.150, 2.1.197 and 2.1.332 (all alike) found it.
MEASURED = [
    ("title before the first message", "t", [custom("t"), USER], True),
    ("title after the last message", "t", [USER, custom("t")], True),
    ("title and nothing else", "t", [custom("t")], True),
    ("first line, 2 MB after it", "t", [custom("t"), filler(2000)], True),
    ("50 KB before, 2 MB after", "t", [filler(50), custom("t"), filler(2000)], True),
    ("80 KB before, 2 MB after", "t", [filler(80), custom("t"), filler(2000)], False),
    ("300 KB before and after", "t", [FAR, custom("t"), FAR], False),
    ("2 MB before, 100 KB after", "t", [filler(2000), custom("t"), filler(100)], False),
    ("2 MB before, 40 KB after", "t", [filler(2000), custom("t"), filler(40)], True),
    ("renamed far from both ends, old name", "a", [custom("a"), FAR, custom("b"), FAR], True),
    ("renamed far from both ends, new name", "b", [custom("a"), FAR, custom("b"), FAR], False),
    ("renamed near the end, old name", "a", [custom("a"), FAR, custom("b"), filler(10)], False),
    ("renamed near the end, new name", "b", [custom("a"), FAR, custom("b"), filler(10)], True),
    ("renamed in a small file, old name", "a", [custom("a"), custom("b"), USER], False),
    ("generated title at the beginning", "t", [generated("t"), FAR], True),
    ("generated title far from both ends", "t", [FAR, generated("t"), FAR], False),
    ("generated title at the end", "t", [FAR, generated("t"), USER], True),
    ("generated title after a custom one", "t", [custom("c"), generated("t"), USER], False),
    ("generated title, custom one at the other end", "t", [custom("c"), FAR, generated("t")], False),
    ("generated title, custom one out of sight", "t", [FAR, custom("c"), FAR, generated("t")], True),
    ("an earlier generated title", "a", [generated("a"), generated("b"), USER], False),
    ("custom title taken away", "t", [custom("t"), custom(""), USER], False),
    ("custom title taken away at the far end", "t", [custom("t"), FAR, custom("")], False),
    ("generated title behind an empty custom one", "t", [generated("t"), custom(""), USER], False),
    ("blank custom title", "t", [custom("t"), custom("  "), USER], False),
    ("null after a title", "t", [custom("t"), '{"type":"custom-title","customTitle":null' + END], True),
    ("a number is no title", "5", ['{"type":"custom-title","customTitle":5' + END, USER], False),
    ("record with blanks", "t", ['{"type": "custom-title", "customTitle": "t", "sessionId": "x"}'], True),
    ("blank before the colon", "t", ['{"type":"custom-title","customTitle" : "t"' + END], False),
    ("other order of fields", "t", ['{"sessionId":"x","customTitle":"t","type":"custom-title"}'], True),
    ("title of another session id", "t", [custom("t").replace(SID, SID[::-1])], True),
    ("title quoted in a prompt", "t", [user(message={"role": "user", "content": custom("t")})], False),
    ("agent name only", "t", ['{"type":"agent-name","agentName":"t"' + END, USER], False),
    ("summary only", "t", ['{"type":"summary","summary":"t","leafUuid":"x"}', USER], False),
    ("upper case", "abc", [custom("ABC"), USER], True),
    ("blanks around", "t", [custom("  t\t"), USER], True),
    ("other white space around", "t", [custom("\ufefft\xa0\u2003"), USER], True),
    ("a control character is no white space", "t", [custom("\x1ct"), USER], False),
    ("U+0085 is no white space", "t", [custom("\x85t"), USER], False),
    ("Kelvin sign", "k", [custom("\u212a"), USER], True),
    ("long s", "s", [custom("\u017f"), USER], False),
    ("full-width letter", "a", [custom("\uff41"), USER], False),
    ("escaped letter", "abc", ['{"type":"custom-title","customTitle":"\\u0061bc"' + END], True),
    ("unknown escape", "t", ['{"type":"custom-title","customTitle":"\\qt"' + END], False),
    (
        "repeated field, first value",
        "a",
        ['{"type":"custom-title","customTitle":"a","customTitle":"b"' + END],
        False,
    ),
    (
        "repeated field, last value",
        "b",
        ['{"type":"custom-title","customTitle":"a","customTitle":"b"' + END],
        True,
    ),
    ("torn in the value, older title", "t", [custom("t"), '{"type":"custom-title","customTitle":"u'], True),
    ("glued to a record torn in a key", "t", [USER, '{"type":"custom-title","customT' + custom("t")], True),
    (
        "glued to a record torn in a value",
        "t",
        ['{"type":"custom-title","customTitle":"a' + custom("t")],
        True,
    ),
    ("side chain", "t", [custom("t"), user(isSidechain=True)], False),
    ("side chain in a later message", "t", [custom("t"), USER, user(isSidechain=True)], False),
    ("side chain in a nested value", "t", [custom("t"), user(toolUseResult={"isSidechain": True})], False),
    ("side chain beyond the beginning", "t", [custom("t"), filler(100), user(isSidechain=True)], True),
    (
        "side chain quoted in a prompt",
        "t",
        [custom("t"), user(message={"content": '"isSidechain":true'})],
        True,
    ),
    ("member of a team", "t", [custom("t"), user(teamName="x")], False),
    ("member of a team, later message", "t", [custom("t"), USER, user(teamName="x")], False),
    ("empty team name first", "t", [custom("t"), user(teamName=""), user(teamName="x")], True),
    ("background session", "t", [custom("t"), user(sessionKind="bg")], True),
    ("other working directory", "t", [custom("t"), user(cwd="/home")], True),
]


@pytest.mark.parametrize(
    ("title", "lines", "expected"), [row[1:] for row in MEASURED], ids=[row[0] for row in MEASURED]
)
def test_a_title_counts_as_it_does_for_claude(title: str, lines: list[str], expected: bool) -> None:
    """Claude and we must agree, or a later `--resume` by title finds two sessions."""
    assert found(title, *lines) is expected


OVERLAP = '{"type":"custom-title","customTitle":"customTitle": "t"'
NESTED = [custom("c"), '{"a":' + custom("t"), user(toolUseResult={"customTitle": "x"})]

# Found by one of 2.1.197 and 2.1.332 but not by the other.
ONE_RELEASE_ONLY = [
    ("another type of record", "t", ['{"type":"zzz","customTitle":"t"' + END, USER]),
    ("no type", "t", ['{"customTitle":"t"' + END, USER]),
    ("nested in a tool's result", "t", [custom("c"), user(toolUseResult={"customTitle": "t"})]),
    ("generated title in a tool's result", "t", [user(toolUseResult={"aiTitle": "t"})]),
    ("record followed by a torn one", "t", [USER, custom("t") + '{"type":"us']),
    ("glued to a record torn after a comma", "t", [USER[: USER.index('"type"')] + custom("t")]),
    ("unknown escape as it stands", "\\qt", ['{"type":"custom-title","customTitle":"\\qt"' + END]),
    ("value that begins where the one before ends", "t", [custom("z"), OVERLAP]),
    ("title above that", "z", [custom("z"), OVERLAP]),
    ("real title above a nested record", "c", NESTED),
    ("nested field below a nested record", "x", NESTED),
    ("real title above a nested field", "c", [custom("c"), user(toolUseResult={"customTitle": "t"})]),
]


@pytest.mark.parametrize(
    ("title", "lines"), [row[1:] for row in ONE_RELEASE_ONLY], ids=[row[0] for row in ONE_RELEASE_ONLY]
)
def test_a_title_that_only_one_release_sees_counts_too(title: str, lines: list[str]) -> None:
    """The session makes way for whichever claude is installed."""
    assert found(title, *lines)


@pytest.mark.parametrize(("title", "lines"), [("customTitle", [custom("z"), OVERLAP]), ("t", NESTED)])
def test_what_no_release_takes_for_a_title_does_not_count(title: str, lines: list[str]) -> None:
    """Counting the titles of two releases must not make a third kind of title."""
    assert not found(title, *lines)


@pytest.mark.parametrize(
    ("what", "raw", "expected"),
    [
        ("no newline at the end", f"{USER}\n{custom('t')}".encode(), True),
        ("CR LF", f"{USER}\r\n{custom('t')}\r\n".encode(), True),
        ("byte order mark", b"\xef\xbb\xbf" + f"{custom('t')}\n{USER}\n".encode(), True),
        ("NUL bytes before", b"\0\0\n" + custom("t").encode(), True),
        ("bytes that are not UTF-8 before", b"\xff\xfe\n" + custom("t").encode(), True),
        ("a byte that is not UTF-8 in the title", custom("t@").encode().replace(b"@", b"\xff"), False),
        ("an empty file", b"", False),
    ],
)
def test_damaged_transcripts_count_as_they_do_for_claude(what: str, raw: bytes, expected: bool) -> None:
    """Measured with 2.1.197 and 2.1.332."""
    assert ("t" in titles_in(ends(raw))) is expected, what


def at_start(*, last_byte: int) -> bytes:
    """Return a large transcript whose title record's value ends so many bytes from the start."""
    value_end = custom("t").index('"t"') + 3
    return b"x" * (last_byte - value_end - 1) + b"\n" + f"{custom('t')}\n{FAR}\n".encode()


def at_end(*, first_byte: int) -> bytes:
    """Return a large transcript whose title record's key begins so many bytes from the end."""
    record = custom("t")
    rest = first_byte - (len(record) - record.index('"customTitle"')) - 1
    return f"{FAR}\n{record}\n".encode() + b"x" * rest


@pytest.mark.parametrize(("content", "expected"), [
    (at_start(last_byte=65_536), True),
    (at_start(last_byte=65_537), False),
    (at_end(first_byte=65_536), True),
    (at_end(first_byte=65_537), False),
])  # fmt: skip
def test_the_ends_are_64_kib_each(content: bytes, expected: bool) -> None:
    """2.1.197 finds a title up to exactly this byte."""
    assert ("t" in titles_in(ends(content))) is expected


def test_a_title_longer_than_any_name_is_not_kept() -> None:
    """Titles of strangers must not fill the memory."""
    assert titles_in(ends(custom("n" * 50_000).encode())) == ()


def test_deep_nesting_is_no_error() -> None:
    """A record of brackets only must not exhaust the stack."""
    line = '{"type":"custom-title","customTitle":' + "[" * 60_000
    assert titles_in((line.encode(),)) == ()


PIECES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"\n", b'"', b"\\", b"{", b"}", b"\xf0\x9f", b'"teamName":"']),
    st.sampled_from([b'"customTitle":"', b'"customTitle": "', b'"aiTitle":"', b'"customTitle":']),
    st.sampled_from([b'"type":"custom-title"', b'{"type":"custom-title",', b'\\"customTitle\\":\\"']),
    st.sampled_from([custom("alpha"), custom("beta"), generated("gamma"), USER]).map(str.encode),
)


@given(st.lists(PIECES, max_size=30).map(b"".join), st.lists(PIECES, max_size=10).map(b"".join))
def test_any_bytes_give_titles_and_never_an_error(head: bytes, tail: bytes) -> None:
    """Whatever lies in the folder, a start goes on."""
    for title in titles_in((tail, head)):
        assert title == normalized(title) != ""


def last_value(text: str, key: str) -> str | None:
    """Scan for the last string value of a key as claude 2.1.197 does: a plain reference."""
    best, best_at = None, -1
    for pattern in (f'"{key}":"', f'"{key}": "'):
        position = text.find(pattern)
        while position >= 0:
            stop = start = position + len(pattern)
            while stop < len(text) and text[stop] != '"':
                stop += 2 if text[stop] == "\\" else 1
            if stop < len(text) and position > best_at:
                best, best_at = text[start:stop], position
            position = text.find(pattern, stop + 1)
    return best


@given(st.lists(PIECES, max_size=30).map(b"".join))
def test_what_a_plain_scan_of_the_text_finds_is_found(content: bytes) -> None:
    """The quick scan over bytes agrees with the slow one over characters."""
    text = content.decode(errors="replace")
    assume("teamName" not in text and "isSidechain" not in text.replace('"isSidechain":false', ""))
    custom_title, ai_title = last_value(text, "customTitle"), last_value(text, "aiTitle")
    title = custom_title if custom_title is not None else ai_title
    if title is not None and "\\" not in title and normalized(title):
        assert normalized(title) in titles_in((content,))


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40), min_size=1, max_size=6))
def test_the_last_custom_title_wins(titles: list[str]) -> None:
    """Whatever text the titles are, the record is read back exactly."""
    content = "".join(f"{custom(title)}\n{USER}\n" for title in titles).encode()
    expected = normalized(titles[-1])
    assert titles_in((content,)) == ((expected,) if expected else ())
