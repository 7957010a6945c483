"""The errors of the package: one base, each with a message that says what is wrong and what to do."""

from __future__ import annotations


class SubagentError(Exception):
    """Base of every error that a person or a parent may read."""


class RefusedError(SubagentError):
    """A call that is refused: nothing was spawned or changed.

    The message is one sentence that says what is wrong and what to do.
    """


class ConfigError(SubagentError):
    """A configuration that cannot be used; the message names the key, the place and what is allowed."""


class StartUpError(SubagentError):
    """The daemon cannot serve (state directory locked, address in use, root not allowed)."""
