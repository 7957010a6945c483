# The parts of NixOS that the modules touch, as strict as there and no more: for evaluations with nixpkgs' library
# alone. Packages are sets with a path.
{ lib }:
let
  inherit (lib) mkOption types;

  strings = mkOption {
    type = types.listOf types.str;
    default = [ ];
  };
  # As NixOS merges a unit's settings: lists add up, all else must be equal.
  settings = mkOption {
    type = types.attrsOf types.anything;
    default = { };
  };
  text = mkOption {
    type = types.str;
    default = "";
  };

  unit.options = {
    description = text;
    wantedBy = strings;
    unitConfig = settings;
  };
  service = {
    options = {
      requires = strings;
      after = strings;
      stopIfChanged = mkOption {
        type = types.bool;
        default = true;
      };
      startLimitIntervalSec = mkOption {
        type = types.nullOr types.int;
        default = null;
      };
      reloadTriggers = strings;
      environment = mkOption { type = types.attrsOf (types.nullOr types.str); };
      serviceConfig = settings;
    };
    # Every service of NixOS has a PATH, at the priority of a plain definition.
    config.environment.PATH = "/nix/store/coreutils/bin";
  };
  socket.options = {
    listenStreams = strings;
    socketConfig = settings;
  };
  slice.options.sliceConfig = settings;

  unitsOf =
    kind:
    mkOption {
      type = types.attrsOf (
        types.submodule [
          unit
          kind
        ]
      );
      default = { };
    };
  manager = {
    services = unitsOf service;
    sockets = unitsOf socket;
    slices = unitsOf slice;
  };

  account =
    { name, config, ... }:
    {
      options = {
        name = mkOption {
          type = types.str;
          default = name;
        };
        uid = mkOption {
          type = types.nullOr types.int;
          default = null;
        };
        home = mkOption {
          type = types.str;
          default = "/var/empty";
        };
        group = text;
        packages = mkOption {
          type = types.listOf types.package;
          default = [ ];
        };
        isNormalUser = mkOption {
          type = types.bool;
          default = false;
        };
        linger = mkOption {
          type = types.nullOr types.bool;
          default = null;
        };
      };
      config = lib.mkIf config.isNormalUser {
        group = lib.mkDefault "users";
        home = lib.mkDefault "/home/${name}";
      };
    };

  rule.options = lib.genAttrs [ "mode" "user" "group" ] (
    _:
    mkOption {
      type = types.str;
      default = "-";
    }
  );

  package = name: {
    type = "derivation";
    inherit name;
    outPath = "/nix/store/${name}";
    meta.mainProgram = name;
  };

  plainValue =
    types.nullOr (
      types.oneOf [
        types.bool
        types.int
        types.float
        types.str
        types.path
        (types.attrsOf plainValue)
        (types.listOf plainValue)
      ]
    )
    // {
      description = "a value that can be written to the file";
    };
  # What is generated is a package; to name it needs the whole value, as with a real one.
  format = {
    type = plainValue;
    generate = name: value: builtins.deepSeq value (package name);
  };
in
{
  options = {
    assertions = mkOption {
      type = types.listOf types.unspecified;
      default = [ ];
    };
    warnings = mkOption {
      type = types.listOf types.str;
      default = [ ];
    };
    networking.hostName = mkOption {
      type = types.str;
      default = "nixos";
    };
    environment.systemPackages = mkOption {
      type = types.listOf types.package;
      default = [ ];
    };
    environment.extraInit = mkOption {
      type = types.lines;
      default = "";
    };
    environment.etc = mkOption {
      type = types.attrsOf (types.submodule { options.text = text; });
      default = { };
    };
    users.users = mkOption {
      type = types.attrsOf (types.submodule account);
      default = { };
    };
    systemd = manager // {
      user = manager;
      package = mkOption {
        type = types.package;
        default = package "systemd";
      };
      tmpfiles.settings = mkOption {
        type = types.attrsOf (types.attrsOf (types.attrsOf (types.submodule rule)));
        default = { };
      };
    };
  };

  config = {
    users.users.root = {
      uid = 0;
      home = "/root";
      group = "root";
    };
    _module.args.pkgs = {
      formats = {
        toml = _: format;
        json = _: format;
      };
      coreutils = package "coreutils";
      git = package "git";
      mcp-server-git = package "mcp-server-git";
      hive-subagent-daemon = package "hive-subagent-daemon";
      claude-code = package "claude-code";
      callPackage = _: _: throw "the package was given";
      runCommand =
        name: _: script:
        builtins.seq script (package name);
      stdenv.buildPlatform.canExecute = _: true;
      stdenv.hostPlatform = { };
    };
  };
}
