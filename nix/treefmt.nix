# What `nix fmt` does, and what `nix flake check` says about the form of the files.
{ pkgs, ... }:
let
  inherit (pkgs) hive-subagent-daemon;
in
{
  projectRootFile = "flake.nix";
  programs = {
    nixfmt.enable = true;
    deadnix.enable = true;
    ruff-check.enable = true;
    ruff-format.enable = true;
    mypy = {
      enable = true;
      directories.hive_subagent_daemon = {
        directory = ".";
        modules = [ "hive_subagent_daemon" ];
        extraPythonPackages = hive-subagent-daemon.dependencies;
      };
    };
  };
}
