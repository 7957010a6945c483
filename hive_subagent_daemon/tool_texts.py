"""What a model reads before it calls a tool: the instructions of the server and a description of each tool.

Clients cut each of these texts at 2,048 characters.
"""

from __future__ import annotations

INSTRUCTIONS = """\
Subagents are headless claude processes that work for you in the background, each known by a name.

How to work with them:
1. Write the instructions for one bounded batch of work into a file: the goal, which files, what not to \
touch, what to report at the end. Call start with a name and that file. It answers at once; it does not \
wait.
2. Do other work meanwhile, or start more, each with a name and files of its own: all of them have full \
permissions, and nothing keeps two from editing the same file. A subagent knows nothing of your \
conversation and cannot ask you anything before its turn ends. It has none of your MCP servers, unless the \
daemon's configuration gives it some.
3. Each turn that ends, however it ended, leaves exactly one loose end. Look at get_loose_ends between \
other steps: completed (read the text, check the result), failed (read the error), killed, could not \
start, lost. Where a notice of hive-subagent wakes you at each end, you need not look.
4. killed and lost mean that work was cut off in the middle: files may be half written. Look at what is \
there before you build on it, and say so when you continue.
5. continue gives the same subagent another turn, with all that it remembers: an answer, a correction, the \
next step. One started with steerable true can be corrected while it runs, by steer.
6. Close each loose end that you have dealt with by close_loose_ends.

Is it still working? status shows age_seconds, the age of its last output. Seconds: it works. A model call \
or a tool can be silent for five minutes, which is normal. If stalled is true, it is probably stuck: \
interrupt it, then continue with what to do differently. Do not call status in a loop; the loose end will \
come.\
"""

START = """\
Start a new subagent in the background and return as soon as its process runs, not when it has finished.

Put the instructions into a file and pass it as prompt_file; they hold for later turns too. The answer has \
the turn, the process id and the directory. When the turn ends, get_loose_ends says how.

timeout_seconds, max_budget_usd and max_turns bound this one turn: killed with cause timeout, or failed with \
the class budget or turns. With steerable true, steer can hand it messages while it runs.

Refused while a subagent of this name runs, when the file or the directory cannot be used, and when too \
many run already; then nothing was started. warnings in the answer tell that the turns before this one \
failed alike, of a login, a limit or the API: start no more then.

Starting a name again begins a new, empty session and archives the old one; to go on with the old one, use \
continue.\
"""

CONTINUE = """\
Give a subagent another turn in the session that it already has: a follow-up, a correction, or the rest of \
work that was cut off. Returns as soon as the process runs.

Works after a turn that completed, failed or was killed, and after a restart of the daemon. Refused only \
while this subagent runs. If the previous turn was killed or lost, the answer has it as previous_turn: its \
work was cut off, so do not build on it unchecked. If claude has no such session, this turn fails and its \
loose end says where it was looked for; pass dir if the session was started in another directory. steerable \
is as in start, for this turn only.\
"""

STEER = """\
Hand a further message to the running turn of a subagent: a correction, a fact that it lacks, one more piece \
of work. It goes on with what it is doing and reads the message with the next result of a tool, or else in a \
further round of the same turn, whose texts then stand in one loose end, the last first.

Only for a turn that start or continue began with steerable true; status shows steerable, and \
unread_messages until it has read them. Answers as soon as the message is on its way, not when it is read. \
What the turn did not read before it ended is told as a warning in its loose end.

Refused when nothing runs under this name, when the turn is not steerable or is ending, and when claude does \
not take messages at the moment; then nothing was sent. To stop it at once use interrupt, then continue.\
"""

INTERRUPT = """\
Stop the running turn of a subagent. Refused when it is not running.

force false: claude is asked to stop (SIGINT; a steerable turn through its input first) and can shut down \
cleanly; ended false in the answer means that it is still doing so, and its loose end will come. force \
true: claude and all processes that it has started are killed at once. The turn is then killed, cause \
interrupt or forced interrupt, unless claude had already written its result. The session stays: continue \
can take it up again.\
"""

STATUS = """\
Show what subagents are doing: one, or all with the running ones first.

state is running, idle (its turn ended on its own), killed (its turn was cut off) or unknown (no turn is \
on record; continue may still find a session). For a running one, age_seconds is the age of its last \
output: seconds mean that it works, minutes may be a long tool or model call, and stalled true means that \
it is probably stuck. activity says which tool runs or that the API is being tried again. For the others, \
last_turn says how the last turn ended.

To learn that a turn has ended use get_loose_ends; there is no need to call this in a loop.\
"""

WAIT = """\
Wait until one of several subagents ends its turn. Use it only when nothing else is left to do before that: \
the call keeps you from everything else, and a loose end comes without it.

Answers as soon as one of names has ended (without names: one of all that run), at once when one of them \
does not run, and otherwise after timeout_seconds, at most 240, with timed_out true; then call it again, or \
look at age_seconds. ended lists those that run no more: read their loose ends, close these, and leave the \
names out of the next call. The daemon's stop ends the waiting with a refusal.\
"""

GET_LOOSE_ENDS = """\
Read the open notices of turns that have ended, the oldest first. Each turn leaves exactly one, whatever \
happened to it.

outcome is completed, failed (see error_class and error), killed (cut off in the middle; see cause), could \
not start, or lost (not known how it ended). text is the subagent's final text, cut at 4,000 characters; \
pass ids to read up to 20,000. remaining counts the open ones that are not shown.

Reading changes nothing: a notice stays until you close it with close_loose_ends.\
"""

CLOSE_LOOSE_ENDS = """\
Close the loose ends that you have dealt with, so that get_loose_ends shows only what is still to do. Pass \
their ids. Closing one again does no harm; ids that no loose end has come back as unknown.\
"""
