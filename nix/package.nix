# The daemon and the command `hive-subagent`. For callPackage, with nothing but nixpkgs.
{
  lib,
  python3,
  commit ? null,
}:
let
  python = python3.override {
    self = python;
    packageOverrides = import ./python-packages.nix;
  };
  inherit (python) pkgs;
  versionOf = text: builtins.head (builtins.match ''.*__version__ = "([^"]+)".*'' text);
in
pkgs.buildPythonApplication {
  pname = "hive-subagent-daemon";
  version = versionOf (builtins.readFile ../hive_subagent_daemon/__init__.py);
  pyproject = true;

  src = lib.fileset.toSource {
    root = ../.;
    fileset = lib.fileset.unions [
      ../.claude-plugin
      ../CHANGELOG.md
      ../CONTRIBUTING.md
      ../LICENSE
      ../README.md
      ../SECURITY.md
      ../docs
      ../hive_subagent_daemon
      ../plugin
      ../plugin-stdio
      ../pyproject.toml
      ../scripts
      ../share
      ../tests
    ];
  };

  build-system = [ pkgs.hatchling ];

  # A build of Nix sees no repository; `--version` names the commit all the same.
  env = if commit == null then { } else { HIVE_SUBAGENT_COMMIT = commit; };

  dependencies = [
    pkgs.anyio
    pkgs.click
    pkgs.h11
    pkgs.jeepney
    pkgs.jinja2
    pkgs.mcp
    pkgs.prometheus-client
    pkgs.pydantic
    pkgs.rich
    pkgs.sdnotify
    pkgs.starlette
    pkgs.systemd-python
    pkgs.tomli-w
    pkgs.typing-extensions
    pkgs.uvicorn
  ];

  # The tests are a check of the flake: they need more than it takes to use the daemon.
  doCheck = false;
  pythonImportsCheck = [
    "hive_subagent_daemon"
    "hive_subagent_daemon.daemon_main"
    "hive_subagent_daemon.client_main"
    # Imported only when they are asked for:
    "hive_subagent_daemon.metric_families"
    "hive_subagent_daemon.page_rendering"
  ];

  passthru = { inherit python; };

  meta = {
    description = "Daemon that lets an AI agent hand bounded work to headless claude processes over MCP";
    license = lib.licenses.mit;
    mainProgram = "hive-subagent-daemon";
    platforms = lib.platforms.linux;
  };
}
