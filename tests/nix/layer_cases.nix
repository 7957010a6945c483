# The option layers, evaluated with nixpkgs' library and the stand-in for NixOS: { name = { value; expected; }; }.
{ library }:
let
  lib = import library;
  host = ../../nixos-module/default.nix;
  agentSide = ../../nixos-module/agent.nix;

  evaluate =
    modules:
    (lib.evalModules {
      modules = [ (import ./stub_nixos.nix { inherit lib; }) ] ++ modules;
    }).config;
  faults = config: map (each: each.message) (lib.filter (each: !each.assertion) config.assertions);

  alice.users.users.alice = {
    isNormalUser = true;
    uid = 1000;
  };
  bob.users.users.bob = {
    isNormalUser = true;
    uid = 1001;
  };
  agents = set: { services.hive-subagent.agents = set; };
  hostWith =
    set:
    evaluate [
      host
      alice
      bob
      (agents set)
    ];
  coder =
    extra:
    hostWith {
      coder = {
        user = "alice";
      }
      // extra;
    };
  serviceOf = config: config.systemd.services.hive-subagent-coder;
  agentWith =
    modules:
    evaluate (
      [
        agentSide
        alice
        {
          networking.hostName = "coder";
          hyperhive.mcp.subagent.user = "alice";
        }
      ]
      ++ modules
    );
  # A declaration of the option by somebody else, as strict as it gets.
  declaredWith = leaves: {
    options.hyperhive.extraMcpServers = lib.mkOption {
      default = { };
      description = "The agent's servers.";
      type = lib.types.attrsOf (lib.types.submodule { options = leaves; });
    };
  };
  leaf =
    type: default:
    lib.mkOption {
      inherit type default;
      description = "A leaf.";
    };
  textLeaf = leaf (lib.types.nullOr lib.types.str) null;
  toolsLeaf = leaf (lib.types.listOf lib.types.str) [ ];
  declared = declaredWith {
    url = textLeaf;
    command = textLeaf;
    allowedTools = toolsLeaf;
  };
  optionsIn = map (message: lib.head (lib.splitString ": " message));
  subagentsServers = config: config.services.hive-subagent.agents.coder.mcpServers;
  throws = value: !(builtins.tryEval (builtins.deepSeq value null)).success;
  case = value: expected: { inherit value expected; };
  url = "http://127.0.0.1:9000/mcp";
in
{
  "a working directory is the whole configuration of an agent" =
    let
      config = evaluate [
        host
        (agents { alice.workDir = "/home/alice/work"; })
        alice
      ];
    in
    case
      {
        faults = faults config;
        units = lib.mapAttrs (_: lib.attrNames) { inherit (config.systemd) services sockets; };
        inherit (config.users.users.alice) linger;
        directory = config.systemd.tmpfiles.settings.hive-subagent."/home/alice/work".d;
        streams = config.systemd.sockets.hive-subagent-alice.listenStreams;
      }
      {
        faults = [ ];
        units = {
          services = [
            "hive-subagent-alice"
            "hive-subagents-address-alice"
          ];
          sockets = [ "hive-subagent-alice" ];
        };
        linger = true;
        directory = {
          mode = ":0755";
          user = ":alice";
          group = ":users";
        };
        streams = [ "127.0.0.1:28762" ];
      };
  "an idle daemon leaves after ten minutes, another time, or never; another setting changes nothing of it" =
    let
      leavesAfter = settings: (coder { inherit settings; }).services.hive-subagent.agents.coder.settings;
    in
    case
      (map (settings: (leavesAfter settings).idle_exit_seconds) [
        { }
        { umask = "0027"; }
        { idle_exit_seconds = 0.5; }
        { idle_exit_seconds = lib.mkForce 0; }
      ])
      [
        600
        600
        0.5
        0
      ];
  "a time to leave after that is none is told" = case (throws
    (coder { settings.idle_exit_seconds = "soon"; })
    .services.hive-subagent.agents.coder.settings.idle_exit_seconds
  ) true;
  "without agents nothing is generated" =
    let
      config = hostWith { };
    in
    case
      [
        config.systemd.services
        config.environment.systemPackages
        config.users.users.alice.linger
      ]
      [
        { }
        [ ]
        null
      ];
  "an agent that is off has no units, no port and no faults" =
    let
      config = hostWith {
        coder = {
          enable = false;
          user = "nobody-there";
          port = 20001;
        };
        alice.port = 20001;
      };
    in
    case
      [
        (faults config)
        (lib.attrNames config.systemd.sockets)
      ]
      [
        [ ]
        [ "hive-subagent-alice" ]
      ];
  "claude is only looked at for an agent that is on" =
    let
      config =
        enable:
        coder {
          inherit enable;
          claudePackage = throw "unfree";
        };
    in
    case
      (map (enable: throws (config enable).systemd.services) [
        false
        true
      ])
      [
        false
        true
      ];
  "the PATH of turns replaces that of NixOS and has the agent's packages" = case (lib.hasInfix
    "/run/wrappers/bin:/nix/store/git/bin:"
    (serviceOf (hostWith {
      coder = {
        user = "alice";
        extraPackages = [
          {
            type = "derivation";
            name = "git";
            outPath = "/nix/store/git";
          }
        ];
      };
    })).environment.PATH
  ) true;
  "any setting of a unit can be overridden" =
    case
      (
        let
          service = serviceOf (evaluate [
            host
            alice
            (agents { coder.user = "alice"; })
            {
              systemd.services.hive-subagent-coder.serviceConfig = {
                WatchdogSec = "5min";
                Nice = 5;
              };
            }
          ]);
        in
        [
          service.serviceConfig.WatchdogSec
          service.serviceConfig.Nice
          service.serviceConfig.Type
        ]
      )
      [
        "5min"
        5
        "notify"
      ];
  "a sink starts the daemon at boot, unless the option says otherwise" =
    let
      settings.loose_ends.sinks = [ { type = "http"; } ];
      wanted = extra: (serviceOf (coder extra)).wantedBy;
    in
    case
      [
        (wanted { })
        (wanted { inherit settings; })
        (wanted {
          inherit settings;
          startAtBoot = false;
        })
        (wanted { startAtBoot = true; })
      ]
      [
        [ ]
        [ "multi-user.target" ]
        [ ]
        [ "multi-user.target" ]
      ];
  "linger can be switched off" =
    case
      (evaluate [
        host
        alice
        (agents { alice = { }; })
        { users.users.alice.linger = false; }
      ]).users.users.alice.linger
      false;
  "units of the user's manager are user units" =
    let
      config = coder { manager = "user"; };
    in
    case
      [
        (config.systemd.services ? hive-subagent-coder)
        config.systemd.user.services.hive-subagent-coder.unitConfig
        config.systemd.user.sockets.hive-subagent-coder.unitConfig
      ]
      [
        false
        { ConditionUser = "alice"; }
        { ConditionUser = "alice"; }
      ];
  "sums are a slice of users' managers" =
    case
      (coder { sliceConfig.MemoryMax = "8G"; }).systemd.user.slices."hive\\x2dsubagent-coder".sliceConfig
      { MemoryMax = "8G"; };
  "credentials can be named in the settings" =
    let
      config = evaluate [
        host
        alice
        (
          { config, ... }:
          agents {
            coder = {
              user = "alice";
              credentials.token = "/run/secrets/token";
              secretEnvironment.ANTHROPIC_API_KEY = "/run/secrets/key";
              settings.auth.token_file = "${config.services.hive-subagent.agents.coder.credentialsDirectory}/token";
            };
          }
        )
      ];
    in
    case
      [
        (faults config)
        (serviceOf config).serviceConfig.LoadCredential
        config.services.hive-subagent.agents.coder.settings.auth.token_file
      ]
      [
        [ ]
        [
          "ANTHROPIC_API_KEY:/run/secrets/key"
          "token:/run/secrets/token"
        ]
        "/run/credentials/hive-subagent-coder.service/token"
      ];
  "two agents with one port are an error that names both" =
    case
      (faults (hostWith {
        alice.port = 20001;
        bob.port = 20001;
      }))
      [
        (
          "services.hive-subagent.agents.bob.port: the daemon of agent bob would listen on port 20001, which is also that of "
          + "the daemon of agent alice (services.hive-subagent.agents.alice.port). "
          + "Set one of these two options to a port that is free, for instance 20002."
        )
      ];
  "every mistake is told, with the option and the fix" =
    let
      messages = faults (hostWith {
        "my agent".user = "alice";
        coder = {
          user = "nobody-there";
          credentials.token = builtins.storeDir + "/abc-token";
          settings.limits.max_running = "eight";
          mcpServers.docs = {
            inherit url;
            command = "/bin/x";
          };
        };
      });
      options = map (message: lib.head (lib.splitString ": " message)) messages;
    in
    case options [
      "services.hive-subagent.agents.coder.user"
      "services.hive-subagent.agents.coder.credentials.token"
      "services.hive-subagent.agents.coder.mcpServers.docs"
      "services.hive-subagent.agents.coder.settings.limits.max_running"
      ''services.hive-subagent.agents."my agent"''
    ];
  "a Nix path as credential is told as what it is" = case (map
    (message: lib.hasInfix "in the Nix store" message)
    (
      faults (coder {
        credentials.token = ./stub_nixos.nix;
      })
    )
  ) [ true ];
  "a home is left to NixOS, and what is made below it is the user's" =
    case
      (map
        (extra: lib.mapAttrs (_: rule: rule.d.user) (coder extra).systemd.tmpfiles.settings.hive-subagent)
        [
          { }
          { workDir = "/home/alice/a/b"; }
          { workDir = "/srv/50%"; }
          {
            workDir = "/srv/x";
            createWorkDir = false;
          }
        ]
      )
      [
        { }
        {
          "/home/alice/a" = ":alice";
          "/home/alice/a/b" = ":alice";
        }
        { "/srv/50%%" = ":alice"; }
        { }
      ];
  "a working directory may be written as a path, which is not copied" =
    case
      [
        (coder { workDir = /home/alice/work; }).services.hive-subagent.agents.coder.workDir
        (optionsIn (
          faults (coder {
            workDir = builtins.storeDir + "/x";
          })
        ))
      ]
      [
        "/home/alice/work"
        [ "services.hive-subagent.agents.coder.workDir" ]
      ];
  "the command for people finds the daemon of its user" =
    case (coder { port = 20001; }).environment.extraInit
      ''
        case "''${USER-}" in
          'alice') export HIVE_SUBAGENT_URL="''${HIVE_SUBAGENT_URL:-http://127.0.0.1:20001/mcp}" ;;
        esac
      '';
  "one directory of two users is told, not left to a conflict of definitions" =
    let
      config = hostWith {
        alice.workDir = "/srv/work";
        bob.workDir = "/srv/work";
      };
      one = hostWith {
        alice.workDir = "/srv/work";
        bob = {
          workDir = "/srv/work";
          createWorkDir = false;
        };
      };
    in
    case
      [
        (optionsIn (faults config))
        config.systemd.tmpfiles.settings.hive-subagent."/srv/work".d.user
        (faults one)
      ]
      [
        [ "services.hive-subagent.agents.bob.workDir" ]
        ":alice"
        [ ]
      ];
  "two agents in one slice" =
    let
      config =
        size:
        hostWith {
          coder = {
            user = "alice";
            limits.slice = "agents.slice";
            sliceConfig.MemoryMax = "8G";
          };
          reviewer = {
            user = "alice";
            limits.slice = "agents.slice";
            sliceConfig.MemoryMax = size;
          };
        };
    in
    case
      [
        (config "8G").systemd.user.slices
        (faults (config "8G"))
        (optionsIn (faults (config "9G")))
      ]
      [
        {
          agents = {
            description = "Subagents of coder and reviewer";
            sliceConfig.MemoryMax = "8G";
            unitConfig = { };
            wantedBy = [ ];
          };
        }
        [ ]
        [ "services.hive-subagent.agents.reviewer.sliceConfig.MemoryMax" ]
      ];
  "a user with another name than its attribute" =
    let
      config = evaluate [
        host
        alice
        { users.users.alice.name = "alina"; }
        (agents { coder.user = "alice"; })
      ];
    in
    case
      [
        (serviceOf config).serviceConfig.User
        (lib.hasInfix "/etc/profiles/per-user/alina/bin" (serviceOf config).environment.PATH)
        config.users.users.alice.linger
        (faults config)
      ]
      [
        "alina"
        true
        true
        [ ]
      ];
  "a user without a home of its own is warned of" =
    let
      with' =
        extra:
        (evaluate [
          host
          { users.users.robot.uid = 900; }
          (agents { robot = extra; })
        ]).warnings;
    in
    case
      [
        (optionsIn (with' { }))
        (with' { environment.CLAUDE_CONFIG_DIR = "/var/lib/robot"; })
      ]
      [
        [ "services.hive-subagent.agents.robot.user" ]
        [ ]
      ];
  "values that fit no type but that of the file are told by their options" =
    case
      (optionsIn (
        faults (coder {
          limits.MemoryMax = "900 %";
          environment."MY-NAME" = "x";
          settings.state_dir = ./stub_nixos.nix;
          mcpServers.docs = {
            inherit url;
            available_to_subagents = true;
          };
        })
      ))
      [
        "services.hive-subagent.agents.coder.limits.MemoryMax"
        "services.hive-subagent.agents.coder.environment.MY-NAME"
        "services.hive-subagent.agents.coder.mcpServers.docs.available_to_subagents"
        "services.hive-subagent.agents.coder.settings.state_dir"
      ];
  "a value of the wrong type is an error of the option" =
    case
      (map throws [
        (coder { port = "x"; }).systemd.sockets
        (coder { limits.OOMPolicy = "lots"; }).services.hive-subagent.agents.coder.limits.OOMPolicy
        (coder { manager = "both"; }).systemd.sockets
        (coder { colour = "red"; }).systemd.sockets
        (coder { settings.limits = x: x; }).services.hive-subagent.agents.coder.settings
      ])
      [
        true
        true
        true
        true
        true
      ];
  "the parent is told where its daemon is" =
    case (coder { port = 20001; }).environment.etc."hive-subagent/coder.mcp.json".text
      ''{"mcpServers":{"subagent":{"type":"http","url":"http://127.0.0.1:20001/mcp"}}}'';
  "the parent has a plugin with hooks for its daemon and the skill" =
    let
      etc = (coder { port = 20001; }).environment.etc;
      files = lib.filterAttrs (path: _: lib.hasPrefix "hive-subagent/coder.plugin/" path) etc;
    in
    case
      {
        names = lib.attrNames files;
        hasAddress = lib.hasInfix "notices --url http://127.0.0.1:20001/mcp" files."hive-subagent/coder.plugin/hooks/hooks.json".text;
        skill = lib.hasInfix "name: claude-subagents" files."hive-subagent/coder.plugin/skills/claude-subagents/SKILL.md".text;
      }
      {
        names = map (path: "hive-subagent/coder.plugin/${path}") [
          ".claude-plugin/plugin.json"
          "hooks/hooks.json"
          "skills/claude-subagents/SKILL.md"
        ];
        hasAddress = true;
        skill = true;
      };
  "whatever starts the agent's claude can ask where its plugin is" =
    case (agentWith [ ]).hyperhive.mcp.subagent.plugin "/etc/hive-subagent/coder.plugin";

  "the agent's side runs one daemon and adds it to the agent's servers" =
    let
      config = agentWith [ ];
    in
    case
      {
        faults = faults config;
        inherit (config.hyperhive) extraMcpServers;
        agents = lib.mapAttrs (_: agent: {
          inherit (agent) user port;
        }) config.services.hive-subagent.agents;
        servers = subagentsServers config;
        sockets = lib.attrNames config.systemd.sockets;
      }
      {
        faults = [ ];
        extraMcpServers.subagent = {
          type = "http";
          url = "http://127.0.0.1:20515/mcp";
          allowedTools = [ "*" ];
          availableToSubagents = false;
        };
        agents.coder = {
          user = "alice";
          port = 20515;
        };
        servers = { };
        sockets = [ "hive-subagent-coder" ];
      };
  "overriding one leaf of the entry keeps the others" =
    let
      entry =
        (agentWith [ { hyperhive.extraMcpServers.subagent.allowedTools = [ "start" ]; } ])
        .hyperhive.extraMcpServers.subagent;
    in
    case
      [
        entry.allowedTools
        entry.url
      ]
      [
        [ "start" ]
        "http://127.0.0.1:20515/mcp"
      ];
  "another server leaves the entry as it is" =
    case
      (lib.attrNames
        (agentWith [ { hyperhive.extraMcpServers.docs = { inherit url; }; } ]).hyperhive.extraMcpServers
      )
      [
        "docs"
        "subagent"
      ];
  "the entry can be dropped, and the daemon with it" =
    let
      dropped = agentWith [ { hyperhive.mcp.subagent.addMcpServer = false; } ];
      off = agentWith [ { hyperhive.mcp.subagent.enable = false; } ];
    in
    case
      [
        dropped.hyperhive.extraMcpServers
        (lib.attrNames dropped.systemd.sockets)
        off.hyperhive.extraMcpServers
        off.systemd.sockets
      ]
      [
        { }
        [ "hive-subagent-coder" ]
        { }
        { }
      ];
  "the port can be set, and the entry follows it" =
    let
      config = agentWith [ { hyperhive.mcp.subagentHttpPort = 20007; } ];
    in
    case
      [
        config.hyperhive.extraMcpServers.subagent.url
        config.systemd.sockets.hive-subagent-coder.listenStreams
      ]
      [
        "http://127.0.0.1:20007/mcp"
        [ "127.0.0.1:20007" ]
      ];
  "only servers that are opted in reach subagents" =
    let
      config = agentWith [
        {
          hyperhive.extraMcpServers = {
            docs = {
              inherit url;
              availableToSubagents = true;
              allowedTools = [ "*" ];
            };
            private = { inherit url; };
          };
        }
      ];
    in
    case
      [
        (lib.attrNames (subagentsServers config))
        (subagentsServers config).docs.url
        ((subagentsServers config) ? docs.allowedTools)
        (faults config)
      ]
      [
        [ "docs" ]
        url
        false
        [ ]
      ];
  "a server that is off does not reach subagents" =
    let
      config = agentWith [
        {
          hyperhive.extraMcpServers.docs = {
            inherit url;
            enable = false;
            availableToSubagents = true;
          };
        }
      ];
    in
    case ((import ../../nixos-module/core.nix).optedIn (subagentsServers config)) { };
  "an existing declaration of the servers stays as strict as it is" =
    let
      config = agentWith [
        declared
        {
          hyperhive.extraMcpServers.docs = {
            inherit url;
            availableToSubagents = true;
          };
        }
      ];
      mistaken = agentWith [
        declared
        { hyperhive.extraMcpServers.docs.link = url; }
      ];
    in
    case
      [
        config.hyperhive.extraMcpServers.subagent
        (lib.attrNames (subagentsServers config))
        (faults config)
        (throws mistaken.hyperhive.extraMcpServers)
      ]
      [
        {
          url = "http://127.0.0.1:20515/mcp";
          command = null;
          allowedTools = [ "*" ];
          availableToSubagents = false;
        }
        [ "docs" ]
        [ ]
        true
      ];
  "a user without a uid is told by the option of this side" = case (map
    (message: lib.head (lib.splitString ": " message))
    (faults (agentWith [ { users.users.alice.uid = lib.mkForce null; } ]))
  ) [ "hyperhive.mcp.subagent.user" ];
  "another port of the agent is an error that names both" =
    case
      (faults (agentWith [
        {
          options.hyperhive.mcp.notesHttpPort = lib.mkOption { type = lib.types.port; };
          config.hyperhive.mcp.notesHttpPort = 20515;
        }
      ]))
      [
        (
          "hyperhive.mcp.notesHttpPort: hyperhive.mcp.notesHttpPort would listen on port 20515, which is also that of "
          + "the daemon of agent coder (hyperhive.mcp.subagentHttpPort). "
          + "Set one of these two options to a port that is free, for instance 20516."
        )
      ];

  "what claude may know of an entry reaches subagents, what is for the agent alone does not" =
    let
      config = agentWith [
        {
          hyperhive.extraMcpServers.docs = {
            inherit url;
            availableToSubagents = true;
            allowedTools = [ "*" ];
            oauth.clientId = "x";
          };
        }
      ];
      inherit (config.services.hive-subagent.agents) coder;
    in
    case ((import ../../nixos-module/core.nix).serverEntry coder.mcpServers.docs) {
      type = "http";
      inherit url;
      oauth.clientId = "x";
      available_to_subagents = true;
    };
  "every entry of the agent is checked, by the name of its own option" =
    let
      config = agentWith [
        {
          hyperhive.extraMcpServers = {
            both = {
              inherit url;
              command = "/bin/x";
            };
            none.enable = true;
            off = {
              enable = false;
              url = 5;
            };
            wrong = {
              command = "/bin/x";
              args = "x";
              availableToSubagents = true;
            };
            misspelt = {
              inherit url;
              heeders.A = "b";
            };
            secret = {
              inherit url;
              headers.Authorization = "Bearer x";
              availableToSubagents = true;
            };
            own = {
              inherit url;
              headers.Authorization = "Bearer x";
            };
            good = {
              inherit url;
              availableToSubagents = true;
            };
          };
        }
      ];
    in
    case
      [
        (optionsIn (faults config))
        (lib.attrNames (subagentsServers config))
      ]
      [
        [
          "hyperhive.extraMcpServers.both"
          "hyperhive.extraMcpServers.misspelt.heeders"
          "hyperhive.extraMcpServers.none"
          "hyperhive.extraMcpServers.secret.headers.Authorization"
          "hyperhive.extraMcpServers.wrong.args"
        ]
        [ "good" ]
      ];
  "the agent's own options are named" =
    case
      (optionsIn (
        faults (agentWith [
          {
            hyperhive.mcp.subagent.agent = "my agent";
            hyperhive.extraMcpServers.subagent.availableToSubagents = true;
          }
        ])
      ))
      [
        "hyperhive.mcp.subagent.agent"
        "hyperhive.extraMcpServers.subagent.availableToSubagents"
      ];
  "an entry that is emptied is told how to be dropped" =
    case (faults (agentWith [ { hyperhive.extraMcpServers.subagent = lib.mkForce { }; } ]))
      [
        "hyperhive.extraMcpServers.subagent: nothing is left in it. To have no such entry, set hyperhive.mcp.subagent.addMcpServer = false."
      ];
  "all entries can be replaced, and that of the daemon with them" =
    let
      config = agentWith [ { hyperhive.extraMcpServers = lib.mkForce { docs = { inherit url; }; }; } ];
    in
    case
      [
        (lib.attrNames config.hyperhive.extraMcpServers)
        (faults config)
      ]
      [
        [ "docs" ]
        [ ]
      ];
  "an agent that only knows servers that it starts gets the bridge" =
    let
      config = agentWith [
        (declaredWith {
          command = textLeaf;
          args = toolsLeaf;
        })
        {
          hyperhive.extraMcpServers.docs = {
            command = "/bin/x";
            availableToSubagents = true;
          };
        }
      ];
    in
    case
      [
        config.hyperhive.extraMcpServers.subagent
        config.warnings
        (faults config)
        (subagentsServers config).docs.command
      ]
      [
        {
          command = "/nix/store/hive-subagent-daemon/bin/hive-subagent";
          args = [
            "mcp"
            "--url"
            "http://127.0.0.1:20515/mcp"
          ];
          availableToSubagents = false;
        }
        [ ]
        [ ]
        "/bin/x"
      ];
  "servers that can have neither url nor arguments leave the daemon out, with a warning" =
    let
      config =
        extra:
        agentWith [
          (declaredWith { command = textLeaf; })
          { hyperhive.extraMcpServers.docs.command = "/bin/x"; }
          extra
        ];
    in
    case
      [
        (lib.attrNames (config { }).hyperhive.extraMcpServers)
        (optionsIn (config { }).warnings)
        (lib.attrNames (config { }).systemd.sockets)
        (faults (config { }))
        (config { hyperhive.mcp.subagent.addMcpServer = false; }).warnings
      ]
      [
        [ "docs" ]
        [ "hyperhive.extraMcpServers" ]
        [ "hive-subagent-coder" ]
        [ ]
        [ ]
      ];
  "servers of another form are left alone, and stay as strict as they are" =
    let
      config = agentWith [
        (declaredWith { package = textLeaf; })
        { hyperhive.extraMcpServers.docs.package = "docs"; }
      ];
      mistaken = agentWith [
        (declaredWith { package = textLeaf; })
        { hyperhive.extraMcpServers.docs.url = url; }
      ];
    in
    case
      [
        (faults config)
        (lib.attrNames config.hyperhive.extraMcpServers)
        (throws mistaken.hyperhive.extraMcpServers)
      ]
      [
        [ ]
        [ "docs" ]
        true
      ];

  "keys that another module declares are no slips" =
    let
      config = agentWith [
        (declaredWith {
          url = textLeaf;
          enable = leaf (lib.types.nullOr lib.types.bool) null;
          enabled = leaf lib.types.bool true;
          icon = textLeaf;
        })
        {
          hyperhive.extraMcpServers.docs = {
            inherit url;
            icon = "book";
            availableToSubagents = true;
          };
        }
      ];
      inherit (subagentsServers config) docs;
    in
    case
      [
        (faults config)
        docs.icon
        (docs ? enabled)
      ]
      [
        [ ]
        "book"
        false
      ];

  "both modules in one system do everything once" =
    let
      config = agentWith [
        ../../nixos-module
        { users.users.alice.uid = lib.mkForce null; }
      ];
    in
    case
      [
        (lib.length (faults config))
        (lib.length config.environment.systemPackages)
      ]
      [ 1 1 ];
}
