"""Sentences of the product that nobody looks for in docs/troubleshooting.md, because nothing is wrong."""

from __future__ import annotations

ORDINARY = (
    # answers of the tools in words
    "Sent to '…' (turn …): it reads that after its current step, or its loose end warns.…",
    "… messages of yours are not read yet.",
    "messages not read yet: …",
    "Before that, in the same turn:",
    "Started '…' (turn …, pid …) …. get_loose_ends will tell how the turn ended.",
    "No signal was needed for '…'",
    "…: it is still shutting down, get_loose_ends will tell when it has ended.",
    "…: the turn has ended.",
    "…: the turn has ended, ….",
    "waiting for the model",
    "No open loose ends.",
    "… has been silent for",
    "Undelivered: … loose ends wait for a sink.",
    # the command on a terminal
    "This speaks MCP, one JSON-RPC message a line, for programs; Ctrl-D ends it.",
    "connect an MCP client that speaks only stdio to the daemon",
    "… … more: this screen is full.",
    "… The daemon answers again.",
    "… … more line… (--full shows all)",
    "the conversation so far was compacted",
    "work in the background has ended",
    "a summary of the conversation so far",
    # checks of `doctor` that are good
    "there is one (…); whether the API takes it, the first turn shows",
    "v2 with the memory controller",
    "… keeps a manager after logging out",
    # notices for a parent
    "- and … more: get_loose_ends shows them.",
    "a subagent's turn has ended",
    "… turns of subagents have ended",
    "Use the tools of the MCP server `subagent`",
    "notice of an ended turn is",
    "notices of ended turns are",
    "… … open (see `get_loose_ends`)",
    "hive-subagent: …, tools of the MCP server `subagent`.",
    "[the beginning of … characters]",
    "watching a caller of /notices",
    # the page
    "text/html; charset=utf-8",
    "text/css; charset=utf-8",
    # what others read: claude, a shell, an HTTP server
    "Carry out the instructions in your system prompt now, completely, and report the result.",
    "application/json, text/event-stream",
    "Usage: hive-subagent notices",
    "read -r word || {",
    # prompts and next steps on a terminal
    "Type the prompt, then Ctrl-D:",
    "The last one (linger) keeps",
    "systemctl --user daemon-reload",
    "systemctl --user enable --now …",
    "Addresses, the agent's name and allow_root come from the configuration",
    # parts of sentences: where a value of the configuration came from, who makes scopes
    "state_dir (the default)",
    "agent (by default the user's name)",
    "work_dir (by default the working directory)",
    "the user's own manager",
    'a number, or text such as "10%" or "infinity"',
    # faults of the program itself, which no user can cause
    "… has no time zone",
    "the registry does not run",
)

FOREIGN = (
    # claude's words
    "Not logged in · Please run /login",
    "Invalid API key · Fix external API key",
    "prompt is too long",
    "Credit balance is too low",
    "There's an issue with the selected model",
)
"""Messages of other programs, which docs/troubleshooting.md explains too."""
