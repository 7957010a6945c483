# The options `services.hive-subagent`.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types literalExpression;
  core = import ./core.nix;
  cfg = config.services.hive-subagent;
  toml = pkgs.formats.toml { };

  accountOf = user: config.users.users.${user} or { };

  # A place on the machine. Nix paths are let through here and refused by an assertion that says why.
  place = types.either types.path types.str;

  # What fits is checked by an assertion, which can say more than a type.
  amount = types.nullOr (types.either types.int types.str);

  memory =
    perTurn:
    "${perTurn}: a number of bytes, or text such as `512M`, `2G`, `40%` of all memory, or `infinity`.";

  perTurn = what: "${what} of every single turn; `null` sets no limit";

  mcpServer = types.submodule {
    freeformType = (pkgs.formats.json { }).type;
    options = {
      enable = mkOption {
        type = types.bool;
        default = true;
        example = false;
        description = "Whether there is this entry at all.";
      };
      availableToSubagents = mkOption {
        type = types.bool;
        default = false;
        example = true;
        description = "Whether subagents get this server. Without a single such entry they have no MCP servers.";
      };
      url = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = "http://127.0.0.1:9000/mcp";
        description = "Address of a server that is reached over HTTP. Set either this or `command`.";
      };
      command = mkOption {
        type = types.nullOr types.str;
        default = null;
        example = literalExpression "lib.getExe pkgs.mcp-server-git";
        description = "Program of a server that claude starts itself. Set either this or `url`.";
      };
      args = mkOption {
        type = types.listOf types.str;
        default = [ ];
        example = [ "--read-only" ];
        description = "Arguments of `command`.";
      };
      env = mkOption {
        type = types.attrsOf types.str;
        default = { };
        example = {
          LOG_LEVEL = "debug";
        };
        description = "Environment of `command`. Every user of the machine can read it: no secrets; claude expands `\${VARIABLE}`.";
      };
      headers = mkOption {
        type = types.attrsOf types.str;
        default = { };
        example = {
          Authorization = "Bearer \${DOCS_TOKEN}";
        };
        description = ''
          HTTP headers for `url`. Every user of the machine can read them: no secrets. claude expands `''${VARIABLE}`
          from the environment of the turn, which `secretEnvironment` can set.
        '';
      };
    };
  };

  limits.options = {
    slice = mkOption {
      type = types.str;
      defaultText = "hive\\x2dsubagent-NAME.slice";
      example = "agents.slice";
      description = ''
        Slice that holds all turns of this agent. A dash in the name nests it in another slice, so that one slice
        can hold several agents of one user.
      '';
    };
    MemoryMax = mkOption {
      type = amount;
      default = null;
      example = "4G";
      description = memory (perTurn "Memory above which the kernel kills a process");
    };
    MemoryHigh = mkOption {
      type = amount;
      default = null;
      example = "3G";
      description = memory (perTurn "Memory above which the kernel slows down the processes");
    };
    MemorySwapMax = mkOption {
      type = amount;
      default = null;
      example = 0;
      description = memory (perTurn "Swap");
    };
    TasksMax = mkOption {
      type = amount;
      default = null;
      example = 500;
      description = "${perTurn "Number of processes and threads"}: a number, or text such as `10%` or `infinity`.";
    };
    CPUWeight = mkOption {
      type = types.nullOr (types.ints.between 1 10000);
      default = null;
      example = 50;
      description = "Weight of every single turn when processors are scarce; `null` is systemd's 100.";
    };
    OOMPolicy = mkOption {
      type = types.nullOr (
        types.enum [
          "continue"
          "stop"
          "kill"
        ]
      );
      default = null;
      example = "kill";
      description = ''
        What becomes of a turn after the kernel has killed one of its processes for memory: it goes on (`continue`,
        the default of the daemon), is stopped, or is killed. All three are told as what they are.
      '';
    };
  };

  agent =
    { name, config, ... }:
    let
      account = accountOf config.user;
    in
    {
      options = {
        enable = mkOption {
          type = types.bool;
          default = true;
          example = false;
          description = "Whether this agent has a daemon.";
        };
        user = mkOption {
          type = types.str;
          default = name;
          defaultText = literalExpression "the agent's name";
          example = "alice";
          description = ''
            User as whom the daemon and all subagents run, by its name in {option}`users.users`, where it must be
            declared with a `uid`. It needs a home of its own: claude keeps its login and all sessions there.
            Lingering is switched on for it, since turns run in scopes of this user's own service manager.
          '';
        };
        manager = mkOption {
          type = types.enum [
            "system"
            "user"
          ];
          default = "system";
          example = "user";
          description = ''
            Whose unit the daemon is: of the system's manager, running as the user, or of the user's own manager.
            `nixos-rebuild switch` neither starts nor restarts units of users' managers, so `user` needs a
            {command}`systemctl --user restart` after changes.
          '';
        };
        listenAddress = mkOption {
          type = types.str;
          default = "127.0.0.1";
          example = "::1";
          description = "Loopback address that the daemon listens on. Whoever may call it can run code as the agent.";
        };
        port = mkOption {
          type = types.ints.between 1 65535;
          default = core.portOf { inherit (cfg.portRange) base span; } name;
          defaultText = literalExpression "computed from the agent's name, within portRange";
          example = 20123;
          description = "Port that the daemon listens on. The default stays the same when other agents come or go.";
        };
        startAtBoot = mkOption {
          type = types.bool;
          default = core.sinksIn config.settings;
          defaultText = literalExpression "whether settings.loose_ends.sinks has entries";
          example = true;
          description = ''
            Whether the daemon starts with the system. Otherwise the first connection starts it, which suffices unless
            loose ends of an earlier boot have to be delivered somewhere.
          '';
        };
        workDir = mkOption {
          # A path without quotes means the place, not a copy of it in the store.
          type = types.coercedTo types.path toString types.str;
          default = account.home or "/";
          defaultText = literalExpression "config.users.users.\${user}.home";
          example = "/home/alice/work";
          description = "Directory in which subagents work unless they are started for another one.";
        };
        createWorkDir = mkOption {
          type = types.bool;
          default = true;
          example = false;
          description = ''
            Whether to make `workDir`, owned by the user, where it is missing; below the user's home also the folders on
            the way. An existing one stays as it is.
          '';
        };
        claudePackage = mkOption {
          type = types.package;
          default = pkgs.claude-code;
          defaultText = literalExpression "pkgs.claude-code";
          example = literalExpression ''pkgs.writeShellScriptBin "claude" "exec /opt/claude/bin/claude \"$@\""'';
          description = "Package with the program `claude`. That of nixpkgs is unfree, and only looked at when an agent needs it.";
        };
        extraPackages = mkOption {
          type = types.listOf types.package;
          default = [ ];
          example = literalExpression "[ pkgs.git pkgs.ripgrep ]";
          description = ''
            Packages on the PATH of subagents, before those of the user and of the system, which are on it as well.
          '';
        };
        environment = mkOption {
          type = types.attrsOf types.str;
          default = { };
          example = {
            LANG = "C.UTF-8";
          };
          description = "Environment variables of subagents. Every user of the machine can read them: no secrets.";
        };
        secretEnvironment = mkOption {
          type = types.attrsOf place;
          default = { };
          example = {
            ANTHROPIC_API_KEY = "/run/secrets/anthropic";
          };
          description = ''
            Environment variables of subagents whose values are secret: for each one the file that holds the value.
            Only root needs to be able to read it (with `manager = "user"` the user). It is read at the start of the
            service and never enters the Nix store.
          '';
        };
        optionNames = mkOption {
          type = types.attrsOf types.str;
          default = { };
          internal = true;
          description = "The options that messages name, where another module sets these: agent, mcpServers, port, user.";
        };
        credentials = mkOption {
          type = types.attrsOf place;
          default = { };
          example = {
            token = "/run/secrets/hive-subagent-token";
          };
          description = ''
            Secret files for the daemon, as systemd credentials: the service finds each under its name in
            `credentialsDirectory`. For `settings` that want the path of a file.
          '';
        };
        credentialsDirectory = mkOption {
          type = types.str;
          readOnly = true;
          default = core.credentialsDirectory {
            inherit name;
            inherit (config) manager;
            uid = account.uid or null;
          };
          defaultText = literalExpression ''"/run/credentials/hive-subagent-''${name}.service"'';
          description = "Where the service finds its `credentials`. To be used in `settings`.";
        };
        settings = mkOption {
          type = types.submodule {
            freeformType = toml.type;
            options.idle_exit_seconds = mkOption {
              type = types.either types.int types.float;
              default = 600;
              example = 0;
              description = ''
                Seconds without turns, deliveries and calls after which the daemon exits; the next call starts it
                again. 0: it stays. Set that where something asks it regularly, such as Prometheus.
              '';
            };
          };
          default = { };
          example = literalExpression ''
            {
              umask = "0027";
              limits.max_running = 4;
              retention.closed_days = 30;
            }
          '';
          description = ''
            The daemon's configuration, key by key as in its TOML file. Unknown keys and values that do not fit are
            errors of the evaluation. Every user of the machine can read it: no secrets.
          '';
        };
        checkConfig = mkOption {
          type = types.bool;
          default = true;
          example = false;
          description = "Whether the daemon itself checks its configuration when the system is built.";
        };
        mcpServers = mkOption {
          type = types.attrsOf mcpServer;
          default = { };
          example = literalExpression ''
            {
              docs = {
                url = "http://127.0.0.1:9000/mcp";
                availableToSubagents = true;
              };
            }
          '';
          description = "MCP servers. Subagents get those with `availableToSubagents`, and otherwise none.";
        };
        limits = mkOption {
          type = types.submodule [
            limits
            { config.slice = lib.mkOptionDefault (core.defaultSlice name); }
          ];
          default = { };
          example = {
            MemoryMax = "4G";
            TasksMax = 500;
          };
          description = "What every single turn may use, by the names of {manpage}`systemd.resource-control(5)`.";
        };
        sliceConfig = mkOption {
          type = types.attrsOf (
            types.oneOf [
              types.bool
              types.int
              types.str
              (types.listOf types.str)
            ]
          );
          default = { };
          example = {
            MemoryMax = "12G";
            CPUQuota = "300%";
          };
          description = ''
            What all turns of this agent together may use: settings of their slice, by the names of
            {manpage}`systemd.resource-control(5)`.
          '';
        };
      };
    };
in
{
  options.services.hive-subagent = {
    package = mkOption {
      type = types.package;
      default = pkgs.hive-subagent-daemon or (pkgs.callPackage ../nix/package.nix { });
      defaultText = literalExpression "pkgs.hive-subagent-daemon";
      example = literalExpression "inputs.hive-subagent-daemon.packages.\${system}.default";
      description = "Package with the daemon and the command `hive-subagent`.";
    };
    portRange = {
      base = mkOption {
        type = types.ints.between 1 65535;
        default = core.defaultRange.base;
        example = 21000;
        description = "First port that an agent is given by default.";
      };
      span = mkOption {
        type = types.ints.between 1 31744;
        default = core.defaultRange.span;
        example = 1000;
        description = "Number of ports that agents are given by default. The last one must be below 32768.";
      };
    };
    agents = mkOption {
      type = types.attrsOf (types.submodule agent);
      default = { };
      example = literalExpression ''
        {
          coder.workDir = "/home/alice/work";
        }
      '';
      description = "Agents that may start subagents, by name. Each has a daemon and a port of its own.";
    };

    otherPortUsers = mkOption {
      type = types.listOf types.attrs;
      default = [ ];
      internal = true;
      description = "Other modules' ports, as `core.portFaults` wants them, which agents must not be given.";
    };
  };
}
