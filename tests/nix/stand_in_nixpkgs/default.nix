# Just enough of a nixpkgs for flake.nix: packages are sets that say what they were made of.
{ system, overlays }:
let
  # The flake's probe puts the library here; a path cannot be given an argument when it is imported as nixpkgs is.
  library = /. + builtins.getEnv "HIVE_NIXPKGS_LIB";
  lib = import library;
  made = kind: name: { inherit kind name; };
  python =
    lib.genAttrs
      [
        "cryptography"
        "hatchling"
        "hypothesis"
        "mypy"
        "pytest"
        "pytest-subprocess"
        "pytest-timeout"
        "pytest-xdist"
        "pytestCheckHook"
      ]
      (pname: {
        inherit pname;
      });
  base = {
    inherit lib;
    # A real one has its library there, too.
    path = dirOf library;
    stdenv.hostPlatform = { inherit system; };
    callPackage = file: _: {
      inherit file;
      dependencies = [ ];
      python.withPackages = choose: choose python;
      python.pkgs = python;
      overridePythonAttrs = given: given;
    };
    mkShell = given: made "shell" "shell" // given;
    ruff = made "package" "ruff";
    writeText = name: text: made "text" name // { inherit text; };
    testers.runNixOSTest = given: made "test" "vm" // given;
  };
  pkgs = lib.foldl' (found: overlay: found // overlay pkgs found) base overlays;
in
pkgs
