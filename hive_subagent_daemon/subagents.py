"""The verbs of the daemon, as its tools call them; their answers have the shapes of `answer_schemas`."""

from __future__ import annotations

import signal
import time
from itertools import islice
from typing import TYPE_CHECKING, Final

import anyio

from hive_subagent_daemon import claude_command, clock, views, walls
from hive_subagent_daemon.couriers import Couriers
from hive_subagent_daemon.errors import RefusedError
from hive_subagent_daemon.names import any_name
from hive_subagent_daemon.planning import TurnRequest
from hive_subagent_daemon.steering import steer
from hive_subagent_daemon.threads import in_thread
from hive_subagent_daemon.turn_warnings import mcp_problems
from hive_subagent_daemon.values import OF_THE_AGENT, Cause, State
from hive_subagent_daemon.waiting import Waits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hive_subagent_daemon.config_values import Limits
    from hive_subagent_daemon.inbox import Inbox
    from hive_subagent_daemon.launcher import Launcher
    from hive_subagent_daemon.records import Records
    from hive_subagent_daemon.registry import Registry
    from hive_subagent_daemon.spawning import Spawner
    from hive_subagent_daemon.turns import Turn
    from hive_subagent_daemon.values import Parentage, Terms
    from hive_subagent_daemon.views import Json

INTERRUPT_SECONDS: Final = 4.0
ENDING_BY_ITSELF_SECONDS: Final = 1.0


class Subagents:
    """The service behind the tools. Use from the event loop only."""

    def __init__(
        self,
        registry: Registry,
        *,
        spawner: Spawner,
        records: Records,
        inbox: Inbox,
        launcher: Launcher,
        couriers: Couriers | None = None,
    ) -> None:
        """Work on one registry; without `couriers` there are no sinks."""
        self._registry = registry
        self._spawner = spawner
        self._records = records
        self._inbox = inbox
        self._launcher = launcher
        self._couriers = couriers or Couriers(())
        self.notices: list[str] = []
        self.reload_trouble: Callable[[], Iterable[str]] = tuple
        self.waits = Waits()
        self.on_spawn: Callable[[float], None] = lambda _seconds: None

    def set_limits(self, limits: Limits) -> None:
        """Use other limits from now on; what runs is not touched."""
        self._registry.limits = limits
        self._spawner.planner.set_limits(limits)

    # Starting and continuing

    async def start(
        self,
        *,
        name: str,
        prompt_file: str,
        model: str | None,
        trigger: str | None,
        dir: str | None,
        terms: Terms,
        parentage: Parentage = OF_THE_AGENT,
    ) -> Json:
        """Start a fresh subagent; see the contract of the tool."""
        prompt = claude_command.DEFAULT_TRIGGER if trigger is None else trigger
        before = self._registry.known.get(name)
        return await self._spawn(TurnRequest(name, prompt, prompt_file, model, dir, before, terms, parentage))

    async def continue_turn(
        self,
        *,
        name: str,
        prompt: str,
        model: str | None,
        dir: str | None,
        terms: Terms,
        parentage: Parentage = OF_THE_AGENT,
    ) -> Json:
        """Give a subagent a new turn; see the contract of the tool."""
        before = self._registry.known.get(name)
        answer = await self._spawn(TurnRequest(name, prompt, None, model, dir, before, terms, parentage))
        if before is not None and before.last_turn.verdict.kind.cut_off:
            answer["previous_turn"] = views.outcome_json(before.last_turn)
        return answer

    async def _spawn(self, request: TurnRequest) -> Json:
        """Spawn a turn under its claimed name and return what is said of it.

        Not cancelled half-way: a parent that hangs up must not leave a process that nobody attends.
        """
        asked = time.monotonic()
        with self._registry.claim(request.name), anyio.CancelScope(shield=True):
            turn = await self._spawner.spawn(request)
            self._registry.attend(turn)
            self._spawner.pending.pop(turn.record.turn, None)
        self.on_spawn(time.monotonic() - asked)
        ahead = self._wall()
        return {
            **({"warnings": [ahead]} if ahead else {}),
            "name": turn.record.name,
            "state": State.RUNNING.value,
            "turn": turn.record.turn,
            "pid": turn.child.pid,
            "session_id": turn.record.session_id,
            "dir": turn.record.dir,
            "scope": turn.child.scope,
        }

    # Interrupting

    async def interrupt(self, *, name: str, force: bool) -> Json:
        """Signal the running turn; see the contract of the tool."""
        turn = self._registry.running.get(name)
        if turn is None:
            message = f"nothing runs under the name {name!r}: there is nothing to interrupt."
            raise RefusedError(message)
        if force:
            return await self._force(turn)
        if await _ends_by_itself(turn):
            return _interrupted(turn, None)
        until = anyio.current_time() + INTERRUPT_SECONDS - ENDING_BY_ITSELF_SECONDS
        with anyio.CancelScope(shield=True):  # a caller who has gone must not leave a turn half interrupted
            delivered = await turn.interrupt(Cause.INTERRUPT)
        with anyio.CancelScope(deadline=until):
            await turn.ended.wait()
        return _interrupted(turn, signal.SIGINT if delivered else None)

    async def steer(self, *, name: str, text: str) -> Json:
        """Hand a message to the running turn; see the contract of the tool."""
        turn = self._registry.running.get(name)
        if turn is None:
            message = f"nothing runs under the name {name!r}: continue it with the message as the prompt."
            raise RefusedError(message)
        most = self._registry.limits.max_prompt_bytes
        if len(text.encode()) > most:
            message = f"text: it has more than max_prompt_bytes, which is {most}: shorten it."
            raise RefusedError(message)
        unread = await steer(turn, text)
        return {"name": name, "turn": turn.record.turn, "sent": True, "unread_messages": unread}

    async def _force(self, turn: Turn) -> Json:
        try:
            with anyio.CancelScope(shield=True):
                leftovers = await self._registry.force(turn)
        except OSError as error:
            message = f"claude was killed; what it had started may still run ({error.strerror}): try again."
            raise RefusedError(message) from error
        with anyio.move_on_after(ENDING_BY_ITSELF_SECONDS):
            await turn.ended.wait()
        return _interrupted(turn, signal.SIGKILL) | {
            "stopped_processes": [*leftovers.killed, *leftovers.strays],
            "remaining_processes": list(leftovers.alive),
        }

    # Telling

    async def status(self, name: str | None, *, among: Callable[[str], bool] = any_name) -> Json:
        """Show one subagent or all; see the contract of the tool."""
        if name is not None:
            shown = [self._status_of(name, text_characters=views.NOTICE_TEXT_CHARACTERS)]
            return self._status(shown, more=0)
        names, entries = self._all(among)
        shown = views.fitting(entries, most=views.STATUS_ENTRIES)
        return self._status(shown, more=len(names) - len(shown))

    def overview(self, *, most: int) -> Json:
        """Show all for a person: as `status`, without the limit on what a parent is shown of one answer."""
        names, entries = self._all()
        shown = list(islice(entries, most))
        answer = self._status(shown, more=len(names) - len(shown))
        return answer | {"running": len(self._registry.running)}

    def _all(self, among: Callable[[str], bool] = any_name) -> tuple[list[str], Iterator[Json]]:
        """Return all names, running ones first, then the most recent, and what is shown of each."""
        names = [name for name in (*self._registry.tree(), *self._recent()) if among(name)]
        return names, (self._status_of(n, text_characters=views.STATUS_TEXT_CHARACTERS) for n in names)

    def _status(self, shown: list[Json], *, more: int) -> Json:
        return {
            "subagents": shown,
            "more": more,
            "launcher": self._launcher.description,
            "claude_version": self._registry.claude_version,
            "claude_config_dir": str(self._spawner.planner.store.config_dir),
            "undelivered": self._couriers.undelivered,
            "warnings": self._warnings(shown),
        }

    async def wait(self, *, names: list[str] | None, timeout_seconds: float) -> Json:
        """Wait until one of these turns ends; see the contract of the tool."""
        running = self._registry.running
        chosen = sorted(running) if names is None else list(dict.fromkeys(names))
        unknown = [name for name in chosen if name not in running and name not in self._registry.known]
        if unknown:
            message = (
                f"no turn of {', '.join(map(repr, unknown))} is on record: wait for names that were started, "
                "as status shows them."
            )
            raise RefusedError(message)
        turns = [running[name] for name in chosen if name in running]
        if turns and len(turns) == len(chosen):
            await self.waits.first_end(turns, within_seconds=timeout_seconds)
        ended = [name for name in chosen if name not in running or running[name] not in turns]
        entries = (
            self._status_of(name, text_characters=views.STATUS_TEXT_CHARACTERS)
            for name in sorted(chosen, key=lambda name: name not in ended)
        )
        shown = views.fitting(entries, most=views.STATUS_ENTRIES)
        return {
            "ended": ended,
            "timed_out": bool(chosen) and not ended,
            "subagents": shown,
            "more": len(chosen) - len(shown),
        }

    def _recent(self) -> list[str]:
        """Return the names that do not run, the last ended first."""
        running = self._registry.running
        idle = [record for name, record in self._registry.known.items() if name not in running]
        idle.sort(key=lambda record: record.last_turn.turn, reverse=True)
        return [record.name for record in idle]

    def _status_of(self, name: str, *, text_characters: int) -> Json:
        if (turn := self._registry.running.get(name)) is not None:
            return self._status_of_running(turn)
        record = self._registry.known.get(name)
        if record is None:
            unknown = dict.fromkeys(("dir", "session_id", "model", "turn", "parent", "depth", "last_turn"))
            return {"name": name, "state": State.UNKNOWN.value, **unknown}
        outcome = record.last_turn
        return {
            "name": name,
            "state": outcome.state.value,
            "dir": record.dir,
            "session_id": record.session_id,
            "model": outcome.model or record.model,
            "turn": outcome.turn,
            "parent": outcome.parentage.name,
            "depth": outcome.parentage.depth,
            "last_turn": views.outcome_json(outcome, text_characters=text_characters),
        }

    def _status_of_running(self, turn: Turn) -> Json:
        record = turn.record
        seen = turn.output.seen
        age = turn.output.age_seconds()
        now = time.monotonic()
        return {
            "name": record.name,
            "state": State.RUNNING.value,
            "dir": record.dir,
            "session_id": turn.session_id,
            "model": (seen.init.model if seen.init else None) or record.model,
            "turn": record.turn,
            "parent": record.parentage.name,
            "depth": record.parentage.depth,
            "running_seconds": round(now - turn.started, 1),
            "age_seconds": round(age, 1),
            "stalled": age > self._registry.limits.stall_after_seconds,
            "activity": views.activity_json(turn.activity, since_seconds=now - turn.activity_since),
            "memory_bytes": turn.child.memory_bytes(),
            "memory_limit_bytes": turn.child.memory_limit_bytes(),
            "mcp_problems": views.bounded(mcp_problems(seen, record.mcp_servers)),
            "cost_usd": seen.result.cost_usd if seen.result else None,
            "rounds": seen.result.rounds if seen.result else None,
            "timeout_seconds": record.bounds.timeout_seconds,
            "max_budget_usd": record.bounds.max_budget_usd,
            "max_turns": record.bounds.max_turns,
            "steerable": turn.is_steerable,
            "unread_messages": len(turn.unread),
        }

    def _wall(self) -> str | None:
        return walls.wall(self._registry.ended.all(), now=clock.now())

    def _warnings(self, shown: list[Json]) -> list[str]:
        silent = self._registry.stalled() | {e["name"]: e["age_seconds"] for e in shown if e.get("stalled")}
        stalled = [
            f"{name} has been silent for {clock.lasting(age)}: it may be stuck."
            for name, age in silent.items()
        ]
        ahead = [] if (told := self._wall()) is None else [told]
        now = [
            *ahead,
            *self._registry.strayed.values(),
            *self._spawner.trouble(),
            *self._couriers.warnings(),
            *self.reload_trouble(),
        ]
        lasting = [*self._registry.unstored.values(), *self.notices, *self._records.unreadable]
        # The stalled ones last: they show in `subagents` too, and what is beyond the bound is only counted.
        return views.bounded([*now, *lasting, *stalled])

    # Loose ends

    async def get_loose_ends(
        self,
        *,
        name: str | None,
        ids: list[str] | None,
        limit: int,
        among: Callable[[str], bool] = any_name,
    ) -> Json:
        """Read open loose ends, oldest first; see the contract of the tool."""
        chosen = self._inbox.select(name=name, ids=ids, among=among)
        most = len(chosen) if ids is not None else limit
        characters = views.WHOLE_TEXT_CHARACTERS if ids is not None else views.NOTICE_TEXT_CHARACTERS
        try:
            shown = await in_thread(self._read_loose_ends, chosen, most, characters)
        except OSError as error:
            message = f"the loose ends cannot be read now ({error.strerror or error}): try again."
            raise RefusedError(message) from error
        return {"loose_ends": shown, "remaining": len(chosen) - len(shown)}

    def _read_loose_ends(self, ids: list[str], most: int, text_characters: int) -> list[Json]:
        read = (self._inbox.read(loose_end_id) for loose_end_id in ids)
        entries = (
            views.loose_end_json(end, text_characters=text_characters) for end in read if end is not None
        )
        return views.fitting(entries, most=most)

    async def close_loose_ends(self, ids: list[str]) -> Json:
        """Close loose ends; see the contract of the tool."""
        try:
            closed, unknown = await in_thread(self._close_all, ids)
        finally:
            self._registry.on_change()  # some can be closed, although another could not be
        return {"closed": closed, "unknown": unknown}

    def _close_all(self, ids: list[str]) -> tuple[list[str], list[str]]:
        closed: list[str] = []
        unknown: list[str] = []
        for loose_end_id in dict.fromkeys(ids):
            try:
                known = self._inbox.close(loose_end_id)
            except OSError as error:
                message = (
                    f"{loose_end_id} could not be closed: {error}. Closed before it: {closed or 'none'}."
                )
                raise RefusedError(message) from error
            (closed if known else unknown).append(loose_end_id)
        return closed, unknown


async def _ends_by_itself(turn: Turn) -> bool:
    """Give a turn whose result is out the time to exit: a signal now could only harm its session."""
    await in_thread(turn.output.look)
    if not turn.has_result:
        return False
    with anyio.move_on_after(ENDING_BY_ITSELF_SECONDS):
        await turn.ended.wait()
    return turn.ended.is_set()


def _interrupted(turn: Turn, number: signal.Signals | None) -> Json:
    outcome = turn.outcome
    return {
        "name": turn.record.name,
        "signal": number.name if number else None,
        "ended": outcome is not None,
        "outcome": views.outcome_json(outcome) if outcome else None,
    }
