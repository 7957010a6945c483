"""Sentences of the product that nobody looks for in docs/troubleshooting.md, because nothing is wrong."""

from __future__ import annotations

ORDINARY = (
    # answers of the tools in words
    "Started '…' (turn …, pid …) …. get_loose_ends will tell how the turn ended.",
    "No signal was needed for '…'",
    "…: it is still shutting down, get_loose_ends will tell when it has ended.",
    "…: the turn has ended.",
    "…: the turn has ended, ….",
    "waiting for the model",
    "No open loose ends.",
    # what others read: claude, a shell, an HTTP server
    "Carry out the instructions in your system prompt now, completely, and report the result.",
    "application/json, text/event-stream",
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
