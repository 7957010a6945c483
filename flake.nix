{
  description = "A small daemon that lets an AI agent hand bounded work to headless claude processes over MCP";

  inputs = {
    nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";
    treefmt-nix = {
      url = "github:numtide/treefmt-nix";
      inputs.nixpkgs.follows = "nixpkgs";
    };
  };

  outputs =
    {
      self,
      nixpkgs,
      treefmt-nix,
    }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      # One evaluation of nixpkgs for each system, with our overlay; nothing unfree is allowed or needed.
      pkgsOf = lib.genAttrs systems (
        system:
        import nixpkgs {
          inherit system;
          overlays = [ self.overlays.default ];
        }
      );
      eachSystem = f: lib.genAttrs systems (system: f pkgsOf.${system});
      treefmtOf = eachSystem (pkgs: treefmt-nix.lib.evalModule pkgs ./nix/treefmt.nix);

      # The plain module, with the package of this flake. The key lets a system import both modules.
      withPackage = module: {
        imports = [
          module
          {
            key = "hive-subagent#package";
            imports = [
              (
                { pkgs, ... }:
                {
                  services.hive-subagent.package =
                    lib.mkDefault
                      self.packages.${pkgs.stdenv.hostPlatform.system}.default;
                }
              )
            ];
          }
        ];
      };
    in
    {
      overlays.default = final: _: {
        hive-subagent-daemon = final.callPackage ./nix/package.nix { commit = self.rev or self.dirtyRev or null; };
      };

      packages = eachSystem (pkgs: {
        default = pkgs.hive-subagent-daemon;
        inherit (pkgs) hive-subagent-daemon;
      });

      nixosModules = {
        default = withPackage ./nixos-module;
        agent = withPackage ./nixos-module/agent.nix;
      };

      checks = eachSystem (pkgs: import ./nix/checks.nix { inherit self pkgs treefmtOf; });

      devShells = eachSystem (pkgs: {
        default = pkgs.mkShell {
          inputsFrom = [ pkgs.hive-subagent-daemon ];
          packages = [
            (pkgs.hive-subagent-daemon.python.withPackages (
              python:
              pkgs.hive-subagent-daemon.dependencies ++ import ./nix/test-packages.nix python ++ [ python.mypy ]
            ))
            pkgs.ruff
            treefmtOf.${pkgs.stdenv.hostPlatform.system}.config.build.wrapper
          ];
          HIVE_NIXPKGS_LIB = "${nixpkgs}/lib";
        };
      });

      formatter = lib.mapAttrs (_: treefmt: treefmt.config.build.wrapper) treefmtOf;
    };
}
