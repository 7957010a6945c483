# `nix flake check`: the package and its tests, the form of the files, the modules, and a machine that runs them.
{
  self,
  pkgs,
  treefmtOf,
}:
let
  inherit (pkgs) lib;
  inherit (pkgs.stdenv.hostPlatform) system;
  library = pkgs.path + "/lib";
  pythonPackages = pkgs.hive-subagent-daemon.python.pkgs;

  # A derivation when every case has the value that it expects, and an error that shows the others.
  holds =
    name: cases:
    let
      wrong = lib.filterAttrs (_: case: case.value != case.expected) cases;
    in
    if wrong == { } then
      pkgs.writeText name "${toString (lib.length (lib.attrNames cases))} cases hold\n"
    else
      throw "${name}: ${lib.generators.toPretty { } wrong}";

  # A whole NixOS, as far as an evaluation goes.
  configurationOf =
    modules:
    import (pkgs.path + "/nixos/lib/eval-config.nix") {
      inherit system;
      modules = [
        self.nixosModules.default
        {
          boot.isContainer = true;
          system.stateVersion = lib.trivial.release;
          users.users.alice = {
            isNormalUser = true;
            uid = 1000;
          };
        }
      ]
      ++ modules;
    };
  stub.claudePackage = pkgs.writeShellScriptBin "claude" "exit 1";
  faultsOf =
    agents:
    map (each: each.message) (
      lib.filter (each: !each.assertion)
        (configurationOf [ { services.hive-subagent = { inherit agents; }; } ]).config.assertions
    );
in
{
  package = pkgs.hive-subagent-daemon;
  unit-tests = pkgs.hive-subagent-daemon.overridePythonAttrs {
    pname = "hive-subagent-daemon-unit-tests";
    doCheck = true;
    nativeCheckInputs = import ./test-packages.nix pythonPackages ++ [ pythonPackages.pytestCheckHook ];
    enabledTestPaths = [ "tests/unit" ];
    # The versions here are not those of pyproject.toml's own environment: their warnings are not errors.
    pytestFlags = [ "--override-ini=filterwarnings=default" ];
  };
  format = treefmtOf.${system}.config.build.check self;
  core = holds "core" (import ../tests/nix/core_cases.nix);
  faults = holds "faults" (import ../tests/nix/fault_cases.nix);
  values = holds "values" (import ../tests/nix/value_cases.nix);
  layers = holds "layers" (import ../tests/nix/layer_cases.nix { inherit library; });

  nixos = holds "nixos" {
    "the units of an agent can be built" = {
      value =
        let
          inherit
            (configurationOf [
              { services.hive-subagent.agents.alice = stub; }
            ])
            config
            ;
        in
        lib.isString config.systemd.units."hive-subagent-alice.service".text
        && lib.isString config.systemd.units."hive-subagent-alice.socket".text;
      expected = true;
    };
    "two agents with one port are told" = {
      value = lib.length (faultsOf {
        a = stub // {
          user = "alice";
          port = 20001;
        };
        b = stub // {
          user = "alice";
          port = 20001;
        };
      });
      expected = 1;
    };
  };

  vm = pkgs.testers.runNixOSTest {
    imports = [ ../tests/nix/machine.nix ];
    defaults.imports = [ self.nixosModules.default ];
  };
}
