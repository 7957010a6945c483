"""What goes wrong with the API, the model or the set-up is a failed turn of its class, never a success."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.claude.real_daemon import RealDaemon, setting_for
from tests.support.offline_model import OfflineModel
from tests.support.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.claude.real_daemon import MakeDaemon

ONE_RETRY = {"CLAUDE_CODE_MAX_RETRIES": "1"}

API_ERRORS = [
    pytest.param("[[status: 401]]", "auth", "API key", id="facts-8-401+case-H2"),
    pytest.param("[[status: 403]]", "auth", "403", id="facts-8-403"),
    pytest.param("[[status: 429]]", "limit", "429", id="facts-8-429+case-J1"),
    pytest.param("[[retry-after: 3600]] [[status: 429]]", "limit", "429", id="facts-8-429-retry-after"),
    pytest.param("[[status: 500]]", "api", "500", id="facts-8-500"),
    pytest.param("[[status: 529]]", "api", "529", id="facts-8-529"),
    pytest.param("[[error: prompt too long]]", "context", "too long", id="facts-8-prompt-too-long"),
    pytest.param("[[error: credit]]", "budget", "Credit balance", id="facts-8-400-credit"),
    pytest.param("[[error: model]]", "model", "model", id="facts-8-model"),
    pytest.param("[[error: invalid]]", "other", "400", id="facts-8-400-other"),
    pytest.param("[[refuse]]", "refusal", "", id="facts-8-refusal"),
]
PROMPTS = [str(parameters.values[0]) for parameters in API_ERRORS]


@pytest.fixture(scope="module")
def ends_by_prompt(
    tmp_path_factory: pytest.TempPathFactory, claude_program: Path
) -> Iterator[dict[str, dict[str, Any]]]:
    """Run a turn for each API error, all at the same time, and return their loose ends."""
    folder = tmp_path_factory.mktemp("errors")
    with OfflineModel() as model:
        daemon = RealDaemon(folder, claude_program, setting_for(folder, model, environment=ONE_RETRY)).boot()
        turns = [daemon.begin(f"worker-{n}", prompt)["turn"] for n, prompt in enumerate(PROMPTS)]
        ends = [daemon.loose_end(f"worker-{n}", turn=turn) for n, turn in enumerate(turns)]
        yield dict(zip(PROMPTS, ends, strict=True))
        daemon.shut()


def failed(end: dict[str, Any], error_class: str) -> dict[str, Any]:
    """Return a loose end that must be a failure of this class."""
    told = {key: end[key] for key in ("outcome", "error_class", "error", "text")}
    assert (end["outcome"], end["error_class"]) == ("failed", error_class), told
    assert end["error"]
    assert error_class in end["title"]
    return end


@pytest.mark.parametrize(("prompt", "error_class", "words"), API_ERRORS)
def test_each_api_error_has_its_class(
    ends_by_prompt: dict[str, dict[str, Any]], prompt: str, error_class: str, words: str
) -> None:
    assert words in failed(ends_by_prompt[prompt], error_class)["error"]


@pytest.mark.shows("facts-8-refused-or-dns")
def test_an_api_that_cannot_be_reached_is_an_api_failure(make_daemon: MakeDaemon) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        daemon = make_daemon(environment={**ONE_RETRY, "ANTHROPIC_BASE_URL": address}).boot()
        end = failed(daemon.play("worker", trigger="[[say: never]]"), "api")
    assert re.search("unable to connect|connection refused", end["error"], re.IGNORECASE)


@pytest.mark.shows("facts-8-accepted-no-answer")
def test_an_api_that_does_not_answer_in_time_is_an_api_failure(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(environment={**ONE_RETRY, "API_TIMEOUT_MS": "1500"}).boot()
    end = failed(daemon.play("worker", trigger="[[silent]]"), "api")
    assert "timed out" in end["error"]


@pytest.mark.shows("facts-8-no-key")
def test_a_claude_without_a_login_is_an_auth_failure(make_daemon: MakeDaemon) -> None:
    daemon = make_daemon(environment={"ANTHROPIC_API_KEY": None}).boot()
    end = failed(daemon.play("worker", trigger="[[say: never]]"), "auth")
    assert "/login" in end["error"]


@pytest.mark.shows("facts-8-529-twice-then-ok")
def test_retries_show_in_the_status_and_a_success_after_them_is_one(daemon: RealDaemon) -> None:
    daemon.begin("worker", "[[status: 529 x2]] [[say: at last]]")
    daemon.does("worker", "retry")
    end = daemon.loose_end("worker")
    assert (end["outcome"], end["text"], end["error_class"]) == ("completed", "at last", None)


@pytest.mark.shows("facts-8-stream-dropped")
def test_a_dropped_stream_is_tried_again_by_claude(daemon: RealDaemon) -> None:
    assert daemon.completed("worker", "[[drop: partial x1]] [[say: whole]]")["text"] == "whole"


@pytest.mark.shows("facts-10-unknown-model")
def test_after_a_wrong_model_the_session_goes_on_with_another(daemon: RealDaemon) -> None:
    end = failed(
        daemon.play("worker", trigger="the word is basalt [[error: model]]", model="no-such"), "model"
    )
    assert "no-such" in end["error"]
    end = daemon.continued("worker", "[[recall: basalt]]", model="")
    assert end["text"].endswith("conversation: yes")


@pytest.mark.shows("facts-7-prompt-file-not-found")
def test_a_start_up_error_of_claude_is_a_set_up_failure_in_its_own_words(daemon: RealDaemon) -> None:
    daemon.completed("worker", "[[say: one]]")
    [copy] = (daemon.state / "prompts").iterdir()
    copy.unlink()
    end = failed(daemon.resume("worker", "[[say: two]]"), "setup")
    assert str(copy) in end["error"]
    eventually(lambda: not daemon.at_home(), what="nothing being left")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        pytest.param("[[status: 401]]", "failed alike (auth: two, one). Start no more", id="auth"),
        pytest.param("[[status: 429]]", "failed alike (limit: two, one). Start no more", id="limit"),
        pytest.param("[[error: credit]]", "failed alike (budget: two, one). Start no more", id="credit"),
    ],
)
def test_a_second_turn_into_the_same_wall_says_what_to_do_before_a_third(
    make_daemon: MakeDaemon, prompt: str, words: str
) -> None:
    daemon = make_daemon(environment=ONE_RETRY).boot()
    daemon.play("one", trigger=prompt)
    end = daemon.play("two", trigger=prompt)
    assert words in " ".join(end["warnings"])
    assert words in daemon.ok("get_loose_ends", name="two").text
