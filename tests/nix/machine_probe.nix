# The VM test without a VM: the program that plays claude there, as text, and with nixpkgs' library also what the
# machine is and what is done with it.
{
  library ? null,
}:
let
  test = import ./machine.nix { config.nodes.machine = node; };
  package = name: {
    type = "derivation";
    inherit name;
    outPath = "/usr";
  };
  pkgs = {
    coreutils = package "coreutils";
    hello = package "hello";
    python3Minimal = package "python3";
    writeShellScriptBin = name: text: package name // { inherit text; };
  };
  plain = test.nodes.machine {
    inherit pkgs;
    lib = { };
  };

  lib = import library;
  node =
    (lib.evalModules {
      modules = [
        (import ./stub_nixos.nix { inherit lib; })
        ../../nixos-module
        (
          { pkgs, ... }@given:
          test.nodes.machine (
            given
            // {
              pkgs = pkgs // {
                inherit (probed) hello python3Minimal writeShellScriptBin;
              };
            }
          )
        )
        {
          options.virtualisation.memorySize = lib.mkOption { type = lib.types.int; };
          options.specialisation = lib.mkOption { type = lib.types.attrsOf lib.types.raw; };
        }
      ];
    }).config;
  probed = pkgs;
in
{
  claude = plain.services.hive-subagent.agents.alice.claudePackage.text;
}
// (
  if library == null then
    { }
  else
    {
      inherit (test) name testScript;
      faults = map (each: each.message) (lib.filter (each: !each.assertion) node.assertions);
      inherit (node) warnings;
      sockets = lib.mapAttrs (_: socket: socket.listenStreams) node.systemd.sockets;
    }
)
