# Just enough of a nixpkgs for flake.nix: packages are sets that say what they were made of.
{ system, overlays }:
let
  # The flake's probe puts the library here; a path cannot be given an argument when it is imported as nixpkgs is.
  lib = import (/. + builtins.getEnv "HIVE_NIXPKGS_LIB");
  made = kind: name: { inherit kind name; };
  base = {
    inherit lib;
    path = /nowhere;
    stdenv.hostPlatform = { inherit system; };
    callPackage = file: _: {
      inherit file;
      dependencies = [ ];
      python.withPackages = _: made "python" "python";
      python.pkgs = { };
    };
    mkShell = given: made "shell" "shell" // given;
    ruff = made "package" "ruff";
    writeText = name: text: made "text" name // { inherit text; };
    testers.runNixOSTest = given: made "test" "vm" // given;
  };
  pkgs = lib.foldl' (found: overlay: found // overlay pkgs found) base overlays;
in
pkgs
