# A configuration of the document in a system where its users are there: what is wrong with it, and what listens.
{ library, configuration }:
let
  lib = import library;
  account = uid: {
    isNormalUser = lib.mkDefault true;
    uid = lib.mkDefault uid;
  };
  inherit
    (lib.evalModules {
      modules = [
        (import ./stub_nixos.nix { inherit lib; })
        (
          if lib.hasInfix "hyperhive" (builtins.readFile configuration) then
            ../../nixos-module/agent.nix
          else
            ../../nixos-module
        )
        {
          # What such examples take from elsewhere.
          options.nixpkgs.config.allowUnfreePredicate = lib.mkOption { type = lib.types.raw; };
          options.sops.secrets = lib.mkOption { default.anthropic.path = "/run/secrets/anthropic"; };
          config.users.users = {
            alice = account 1000;
            bob = account 1001;
          };
        }
        configuration
      ];
    })
    config
    ;
in
{
  faults = map (each: each.message) (lib.filter (each: !each.assertion) config.assertions);
  inherit (config) warnings;
  sockets = lib.attrNames config.systemd.sockets;
}
