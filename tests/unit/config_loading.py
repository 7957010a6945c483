"""Loading a configuration in a folder of its own, as the tests of the configuration do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hive_subagent_daemon.config import Config, Flags, load_config
from hive_subagent_daemon.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NO_FLAGS = Flags()


def load(
    folder: Path,
    toml: str | bytes = "",
    *,
    flags: Flags = NO_FLAGS,
    environ: Mapping[str, str] | None = None,
    user_name: str = "alice",
) -> Config:
    """Load a configuration from `folder/config.toml`, with the folder as working directory."""
    file = folder / "config.toml"
    file.write_bytes(toml.encode() if isinstance(toml, str) else toml)
    return load_config(
        config_file=file,
        flags=flags,
        environ=environ or {},
        cwd=folder,
        user_name=user_name,
        home=folder / "home",
    )


def refusal(
    folder: Path,
    toml: str | bytes = "",
    *,
    flags: Flags = NO_FLAGS,
    environ: Mapping[str, str] | None = None,
    user_name: str = "alice",
) -> str:
    """Return why a configuration is refused, with the folder's path as `DIR`."""
    with pytest.raises(ConfigError) as caught:
        load(folder, toml, flags=flags, environ=environ, user_name=user_name)
    return str(caught.value).replace(str(folder), "DIR")
