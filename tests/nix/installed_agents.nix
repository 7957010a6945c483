# The units and configurations of agents, as the option layers would render them, for a systemd without NixOS.
{ agents }:
let
  core = import ../../nixos-module/core.nix;
  render =
    name: given:
    let
      credentials = given.credentials // given.secretEnvironment;
    in
    {
      faults = core.agentFaults {
        option = "agents.${name}";
        inherit name;
        inherit (given) uid;
        agent = given;
      };
      configuration = core.configurationOf {
        inherit name;
        inherit (given) uid claude;
        agent = given;
        credentialsDirectory = core.credentialsDirectory {
          inherit name;
          inherit (given) manager uid;
        };
      };
      units = builtins.mapAttrs (_: core.unitFiles) (
        core.unitsOf [
          {
            inherit name credentials;
            inherit (given)
              command
              manager
              port
              programs
              sliceConfig
              startAtBoot
              uid
              user
              ;
            inherit (given.limits) slice;
            address = given.listenAddress;
            path = core.searchPath {
              inherit (given) user home packages;
            };
          }
        ]
      );
    };
  defaults = name: (import ./sample_agent.nix { inherit name; }).options;
in
builtins.mapAttrs (name: changes: render name (defaults name // changes)) agents
