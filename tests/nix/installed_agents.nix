# The units and configurations of agents, as the option layers would render them, for a systemd without NixOS.
{ agents }:
let
  core = import ../../nixos-module/core.nix;

  given = builtins.mapAttrs (
    name: changes:
    let
      inherit ((import ./sample_agent.nix { inherit name; })) options;
    in
    options // changes // { limits = options.limits // changes.limits or { }; }
  ) agents;
  plain =
    name:
    let
      agent = given.${name};
    in
    {
      inherit name;
      inherit (agent)
        command
        manager
        port
        programs
        sliceConfig
        startAtBoot
        uid
        user
        ;
      inherit (agent.limits) slice;
      credentials = agent.credentials // agent.secretEnvironment;
      address = agent.listenAddress;
      path = core.searchPath {
        inherit (agent) user home packages;
      };
    };
  together = core.unitsOf (map plain (builtins.attrNames given));

  # Services and sockets are an agent's own, a slice may be that of several.
  unitsOf =
    name:
    builtins.mapAttrs (
      manager: own:
      core.unitFiles (own // { slices = builtins.intersectAttrs own.slices together.${manager}.slices; })
    ) (core.unitsOf [ (plain name) ]);
in
builtins.mapAttrs (name: agent: {
  faults = core.agentFaults {
    option = "agents.${name}";
    inherit name agent;
    inherit (agent) uid;
  };
  configuration = core.configurationOf {
    inherit name agent;
    inherit (agent) uid claude;
    credentialsDirectory = core.credentialsDirectory {
      inherit name;
      inherit (agent) manager uid;
    };
  };
  units = unitsOf name;
}) given
