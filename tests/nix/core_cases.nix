# What the core computes, as data: { name = { value; expected; }; }.
let
  core = import ../../nixos-module/core.nix;
  inherit (builtins) attrNames mapAttrs;

  sample = import ./sample_agent.nix { name = "coder"; };
  inherit (sample) options;
  agent = sample.plain;
  reviewer = (import ./sample_agent.nix { name = "reviewer"; }).plain;
  unitNames = units: mapAttrs (_: mapAttrs (_: attrNames)) units;
  configuration =
    changes: uid:
    core.configurationOf {
      name = "coder";
      inherit uid;
      agent = options // changes;
      claude = "/bin/claude";
      credentialsDirectory = "/run/credentials/x";
    };
  plainConfiguration = {
    agent = "coder";
    claude = "/bin/claude";
    work_dir = "/srv/work";
    listen = [ "127.0.0.1:20515" ];
    scopes.manager = "user";
  };
  server = {
    url = "http://127.0.0.1:9000/mcp";
    availableToSubagents = true;
  };
in
{
  "a port depends on the name alone" = {
    value = map (core.portOf core.defaultRange) [
      "coder"
      "reviewer"
    ];
    expected = [
      20515
      23140
    ];
  };
  "a port stays in a range of one" = {
    value = core.portOf {
      base = 21000;
      span = 1;
    } "coder";
    expected = 21000;
  };
  "an IPv6 address is put in brackets" = {
    value = core.url "::1" 20515;
    expected = "http://[::1]:20515/mcp";
  };
  "a word of a command is quoted where systemd would split or expand it" = {
    value = core.execLine [
      "/bin/daemon"
      "a b"
      "50%"
      "$HOME"
      "say \"x\""
    ];
    expected = ''/bin/daemon "a b" "50%%" "$$HOME" "say \"x\""'';
  };
  "an address of the whole machine is reached by loopback" = {
    value = map (address: core.url address 20123) [
      "0.0.0.0"
      "::"
      "0:0::0"
      "10.0.0.5"
    ];
    expected = [
      "http://127.0.0.1:20123/mcp"
      "http://[::1]:20123/mcp"
      "http://[::1]:20123/mcp"
      "http://10.0.0.5:20123/mcp"
    ];
  };
  "turns find wrappers first, then the agent's own packages" = {
    value = core.searchPath {
      user = "alice";
      home = "/home/alice";
      packages = [ "/nix/store/git" ];
    };
    expected = builtins.concatStringsSep ":" [
      "/run/wrappers/bin"
      "/nix/store/git/bin"
      "/home/alice/.nix-profile/bin"
      "/home/alice/.local/state/nix/profile/bin"
      "/etc/profiles/per-user/alice/bin"
      "/nix/var/nix/profiles/default/bin"
      "/run/current-system/sw/bin"
    ];
  };
  "an agent has a socket, a service and a watch on the address" = {
    value = unitNames (core.unitsOf [ agent ]);
    expected = {
      system = {
        services = [
          "hive-subagent-coder"
          "hive-subagents-address-coder"
        ];
        sockets = [ "hive-subagent-coder" ];
        slices = [ ];
      };
      user = {
        services = [ ];
        sockets = [ ];
        slices = [ ];
      };
    };
  };
  "the sum of turns is a slice of users' managers" = {
    value = (core.unitsOf [ (agent // { sliceConfig.MemoryMax = "8G"; }) ]).user.slices;
    expected."hive\\x2dsubagent-coder" = {
      description = "Subagents of coder";
      sliceConfig.MemoryMax = "8G";
    };
  };
  "the sum of turns of root is a slice of the system's manager" = {
    value =
      let
        units = core.unitsOf [
          (
            agent
            // {
              uid = 0;
              user = "root";
              sliceConfig.MemoryMax = "8G";
            }
          )
        ];
      in
      [
        (attrNames units.system.slices)
        (attrNames units.user.slices)
        units.system.services.hive-subagent-coder.requires
      ];
    expected = [
      [ "hive\\x2dsubagent-coder" ]
      [ ]
      [ "hive-subagent-coder.socket" ]
    ];
  };
  "agents in one slice share its sums and its description" = {
    value =
      (core.unitsOf [
        (
          agent
          // {
            slice = "agents.slice";
            sliceConfig = {
              MemoryMax = "8G";
              TasksMax = 500;
            };
          }
        )
        (
          reviewer
          // {
            slice = "agents.slice";
            sliceConfig = {
              MemoryMax = "8G";
              CPUQuota = "300%";
            };
          }
        )
      ]).user.slices;
    expected.agents = {
      description = "Subagents of coder and reviewer";
      sliceConfig = {
        MemoryMax = "8G";
        TasksMax = 500;
        CPUQuota = "300%";
      };
    };
  };
  "a home is made with its user, and what lies between it and a working directory is the user's" = {
    value = map (workDir: attrNames (core.workDirectories [ (agent // { inherit workDir; }) ])) [
      "/home/alice"
      "/home/alice/"
      "/home/alice/a//b/c/"
      "/home/alicework"
      "/srv/agents/coder"
      "/"
    ];
    expected = [
      [ ]
      [ ]
      [
        "/home/alice/a"
        "/home/alice/a/b"
        "/home/alice/a/b/c"
      ]
      [ "/home/alicework" ]
      [ "/srv/agents/coder" ]
      [ ]
    ];
  };
  "a working directory of a user without a home is made alone" = {
    value = attrNames (
      core.workDirectories [
        (
          agent
          // {
            home = null;
            workDir = "/srv/a/b";
          }
        )
      ]
    );
    expected = [ "/srv/a/b" ];
  };
  "a path is written as systemd-tmpfiles reads it in quotes" = {
    value = core.tmpfilesPath "/srv/50% o'clock\\x";
    expected = "/srv/50%% o\\'clock\\\\x";
  };
  "units of the user's manager are for that user alone" = {
    value =
      let
        units = core.unitsOf [ (agent // { manager = "user"; }) ];
      in
      [
        units.system.services
        units.user.sockets.hive-subagent-coder.unitConfig
        units.user.services.hive-subagent-coder.unitConfig
        (units.user.services.hive-subagent-coder.serviceConfig ? User)
        (units.user.services.hive-subagent-coder.environment ? XDG_RUNTIME_DIR)
      ];
    expected = [
      { }
      { ConditionUser = "alice"; }
      { ConditionUser = "alice"; }
      false
      false
    ];
  };
  "only a start at boot makes a target want the service" = {
    value = map (startAtBoot: (core.service (agent // { inherit startAtBoot; })).wantedBy) [
      false
      true
    ];
    expected = [
      [ ]
      [ "multi-user.target" ]
    ];
  };
  "the service waits for the user's manager and is restarted by a switch, not stopped" = {
    value =
      let
        service = core.service agent;
      in
      [
        service.requires
        service.after
        service.stopIfChanged
        service.environment
      ];
    expected = [
      [
        "hive-subagent-coder.socket"
        "user@1000.service"
      ]
      [
        "hive-subagent-coder.socket"
        "dbus.service"
        "user@1000.service"
      ]
      false
      {
        PATH = "/bin";
        XDG_RUNTIME_DIR = "/run/user/1000";
      }
    ];
  };
  "another address reloads the watch on it" = {
    value = (core.unitsOf [ agent ]).system.services.hive-subagents-address-coder.reloadTriggers;
    expected = [ "127.0.0.1:20515" ];
  };
  "credentials are loaded by the service" = {
    value =
      (core.service (agent // { credentials.token = "/run/secrets/token"; }))
      .serviceConfig.LoadCredential;
    expected = [ "token:/run/secrets/token" ];
  };
  "the plain configuration says no more than it must" = {
    value = configuration { } 1000;
    expected = plainConfiguration;
  };
  "scopes of root are made by the system's manager" = {
    value = (configuration { } 0).scopes.manager;
    expected = "system";
  };
  "limits of every turn are scopes' settings, beside those of the user" = {
    value =
      (configuration {
        limits = options.limits // {
          MemoryMax = "4G";
          TasksMax = 500;
          slice = "agents.slice";
        };
        settings.scopes.memory_high = "3G";
      } 1000).scopes;
    expected = {
      manager = "user";
      memory_max = "4G";
      tasks_max = 500;
      slice = "agents.slice";
      memory_high = "3G";
    };
  };
  "secret variables are read from credentials" = {
    value =
      (configuration {
        environment.LANG = "C.UTF-8";
        secretEnvironment.ANTHROPIC_API_KEY = "/run/secrets/key";
      } 1000).environment;
    expected = {
      LANG = "C.UTF-8";
      ANTHROPIC_API_KEY.file = "/run/credentials/x/ANTHROPIC_API_KEY";
    };
  };
  "only servers that are opted in reach the daemon, with all but what the module keeps in them" = {
    value =
      (configuration {
        mcpServers = {
          docs = server // {
            enable = true;
            allowedTools = [ "*" ];
            args = [ ];
            headers = { };
            command = null;
            oauth.clientId = "x";
            tags = [ ];
          };
          off = server // {
            enable = false;
          };
          private = removeAttrs server [ "availableToSubagents" ];
        };
      } 1000).mcp_servers;
    expected.docs = {
      type = "http";
      url = "http://127.0.0.1:9000/mcp";
      available_to_subagents = true;
      oauth.clientId = "x";
      tags = [ ];
    };
  };
  "without a server that is opted in the daemon is told of none" = {
    value = (configuration { mcpServers.private.url = "http://127.0.0.1:1/"; } 1000) ? mcp_servers;
    expected = false;
  };
  "a parent is told where its daemon is" = {
    value = core.parentConfig {
      address = "0.0.0.0";
      port = 20515;
    };
    expected.mcpServers.subagent = {
      type = "http";
      url = "http://127.0.0.1:20515/mcp";
    };
  };
  "hooks of the plugin call the agent's own daemon, and nothing in a turn" = {
    value =
      let
        given = core.pluginHooks {
          program = "/nix/store/x/bin/hive-subagent";
          address = "0.0.0.0";
          port = 20515;
        };
      in
      builtins.mapAttrs (_: map (group: map (hook: hook.command) group.hooks)) given.hooks;
    expected =
      let
        command = ''[ "$HIVE_SUBAGENT_TURN" ] || exec /nix/store/x/bin/hive-subagent notices --url http://127.0.0.1:20515/mcp'';
      in
      {
        SessionStart = [ [ command ] ];
        Stop = [ [ command ] ];
        UserPromptSubmit = [ [ command ] ];
      };
  };
  "the hook that waits is the plugin's own but for its command" = {
    value = map (hook: removeAttrs hook [ "command" ])
      (builtins.head
        (core.pluginHooks {
          program = "hive-subagent";
          address = "127.0.0.1";
          port = 20515;
        }).hooks.Stop
      ).hooks;
    expected = [
      {
        type = "command";
        asyncRewake = true;
        timeout = 86400;
      }
    ];
  };
  "a shell of a user with one agent knows where that is" = {
    value = core.shellInit [
      (agent // { user = "o'hara"; })
      (reviewer // { user = "bob"; })
      (reviewer // { user = "bob"; })
    ];
    expected = ''
      case "''${USER-}" in
        'o'\'''hara') export HIVE_SUBAGENT_URL="''${HIVE_SUBAGENT_URL:-http://127.0.0.1:20515/mcp}" ;;
      esac
    '';
  };
  "where no user has just one agent a shell knows nothing" = {
    value = [
      (core.shellInit [ ])
      (core.shellInit [
        agent
        (reviewer // { inherit (agent) user; })
      ])
    ];
    expected = [
      ""
      ""
    ];
  };
  "an agent as it should be has no faults" = {
    value = core.agentFaults {
      option = "agents.coder";
      name = "coder";
      agent = options // {
        mcpServers.docs = server;
        credentials.token = "/run/secrets/token";
        secretEnvironment.ANTHROPIC_API_KEY = "/run/secrets/key";
        settings = {
          on_restart = "adopt";
          limits.max_running = 4;
          environment.NAME = "x";
          loose_ends.sinks = [
            {
              type = "command";
              argv = [ "/bin/true" ];
            }
          ];
        };
      };
      uid = 1000;
    };
    expected = [ ];
  };
}
