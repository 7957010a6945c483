# Agents that are well but for some changes: what the core says of each, and what it would write for it.
{ agents }:
let
  core = import ../../nixos-module/core.nix;
  inherit ((import ./sample_agent.nix { name = "coder"; })) options;
  judge =
    changes:
    let
      agent =
        options // { workDir = "/"; } // changes // { limits = options.limits // changes.limits or { }; };
      uid = 1000;
      name = "coder";
    in
    {
      faults = core.agentFaults {
        option = "agents.coder";
        inherit name agent uid;
      };
      configuration = core.configurationOf {
        inherit name agent uid;
        claude = "/bin/sh";
        credentialsDirectory = "/run/credentials/x";
      };
    };
in
builtins.mapAttrs (_: judge) agents
