# What flake.nix gives, with a stand-in for nixpkgs and one for treefmt.
{ library }:
let
  lib = import library;
  flake = import ../../flake.nix;
  self = outputs // {
    outPath = ../..;
  };
  treefmt.config.build = {
    wrapper = "treefmt";
    check = _: "treefmt check";
  };
  outputs = flake.outputs {
    inherit self;
    nixpkgs = {
      inherit lib;
      outPath = ./stand_in_nixpkgs;
    };
    treefmt-nix.lib.evalModule = _: _: treefmt;
  };
  system = "x86_64-linux";
  checks = outputs.checks.${system};
  module =
    (lib.evalModules {
      modules = [
        (import ./stub_nixos.nix { inherit lib; })
        outputs.nixosModules.agent
        outputs.nixosModules.default # both in one system are one package
        {
          _module.args.pkgs = lib.mkForce {
            stdenv.hostPlatform = { inherit system; };
            formats.toml = _: { type = lib.types.anything; };
            formats.json = _: { type = lib.types.anything; };
          };
        }
      ];
    }).options.services.hive-subagent.package;
in
{
  names = lib.mapAttrs (_: lib.attrNames) (
    removeAttrs outputs [
      "formatter"
      "checks"
    ]
  );
  systems = lib.attrNames outputs.packages;
  package = toString outputs.packages.${system}.default.file;
  checks = lib.attrNames checks;
  format = checks.format;
  cases = map (name: checks.${name}.text) [
    "core"
    "faults"
    "values"
    "layers"
  ];
  moduleHasPackage =
    (lib.head module.definitionsWithLocations).value.file == outputs.packages.${system}.default.file;
  shell = outputs.devShells.${system}.default.kind;
  testPackages = map (each: map (found: found.pname) each) [
    checks.unit-tests.nativeCheckInputs
    (lib.head outputs.devShells.${system}.default.packages)
  ];
  vm = map baseNameOf checks.vm.imports;
}
