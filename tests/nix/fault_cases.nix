# Mistakes, each as what is changed in an agent that has none, with the message that tells the fix.
let
  core = import ../../nixos-module/core.nix;

  sample = import ./sample_agent.nix { name = "coder"; };
  good = sample.options;
  inherit (sample) plain;
  other = (import ./sample_agent.nix { name = "reviewer"; }).plain // {
    user = "bob";
    home = "/home/bob";
  };
  faultsOf =
    {
      name ? "coder",
      uid ? 1000,
      ...
    }@changes:
    core.agentFaults {
      option = "agents.${name}";
      inherit name uid;
      agent =
        good
        // removeAttrs changes [
          "name"
          "uid"
        ]
        // {
          limits = good.limits // changes.limits or { };
        };
    };
  url = "http://127.0.0.1:9000/mcp";
  user = name: address: port: {
    who = "agent ${name}";
    option = "agents.${name}.port";
    inherit address port;
  };
  case = value: expected: { inherit value expected; };
  one = changes: message: case (faultsOf changes) [ message ];
in
{
  "a user without a uid" = one { uid = null; } (
    ''agents.coder.user: the user "alice" is not declared or has no fixed uid, and the units need it ''
    + "(user@UID.service, /run/user/UID). Set users.users.alice.uid, for instance to 1000, or name another user."
  );
  "a name that units cannot have" = one { name = "my agent"; } (
    "agents.my agent: an agent's name stands in unit names and paths, so it is 1 to 63 letters, digits, '_', '-' and '.', "
    + "and does not begin with '.'. Name it, for instance, my-agent."
  );
  "a name that begins with a dot" =
    case
      (map
        (
          name:
          builtins.length (faultsOf {
            inherit name;
          })
        )
        [
          ".."
          ".hidden"
          "-p"
          ""
        ]
      )
      [
        1
        1
        0
        1
      ];
  "root without its consent" =
    one
      {
        uid = 0;
        user = "root";
      }
      (
        "agents.coder.user: is root, and a subagent has all rights of its agent. Name another user, or say "
        + "agents.coder.settings.allow_root = true if root shall run claude."
      );
  "both url and command" =
    one
      {
        mcpServers.docs = {
          inherit url;
          command = "/bin/x";
        };
      }
      (
        "agents.coder.mcpServers.docs: needs exactly one of url and command, not both. "
        + "Set url for a server that is reached over HTTP, or command (with args and env) for a program that is started."
      );
  "neither url nor command" = one { mcpServers.docs.url = null; } (
    "agents.coder.mcpServers.docs: needs exactly one of url and command, not none. "
    + "Set url for a server that is reached over HTTP, or command (with args and env) for a program that is started."
  );
  "arguments of a server that is not started" = one {
    mcpServers.docs = {
      inherit url;
      args = [ "x" ];
    };
  } "agents.coder.mcpServers.docs.args: does not go together with url. Remove one of the two.";
  "headers of a server that is started" = one {
    mcpServers.docs = {
      command = "/bin/x";
      headers.A = "b";
    };
  } "agents.coder.mcpServers.docs.headers: does not go together with command. Remove one of the two.";
  "a URL of no known kind" = one {
    mcpServers.docs.url = "localhost:9000";
  } ''agents.coder.mcpServers.docs.url: must begin with http:// or https://, not "localhost:9000".'';
  "a type that does not fit" =
    one
      {
        mcpServers.docs = {
          inherit url;
          type = "stdio";
        };
      }
      ''agents.coder.mcpServers.docs.type: must be "http" or "streamable-http" or "sse" or "ws" with url, not "stdio".'';
  "a value of the wrong kind in a server" = one {
    mcpServers.docs = {
      command = "/bin/x";
      args = "y";
    };
  } ''agents.coder.mcpServers.docs.args: must be a list of strings, not "y".'';
  "a server's name that tools cannot have" = one { mcpServers."my docs" = { inherit url; }; } (
    ''agents.coder.mcpServers."my docs": the name of an MCP server is letters, digits, '_' and '-', because it becomes ''
    + "part of the names of its tools. Rename it."
  );
  "a mistake in a server that is off" = case (faultsOf { mcpServers.docs.enable = false; }) [ ];
  "subagents of subagents without a depth" =
    one
      {
        mcpServers.subagent = {
          inherit url;
          availableToSubagents = true;
        };
      }
      (
        "agents.coder.mcpServers.subagent.availableToSubagents: lets subagents start subagents, which needs "
        + "agents.coder.settings.limits.max_depth = 2 (or more) as well. Set that too, or leave this false."
      );
  "a store path as credential" = one { credentials.token = "${builtins.storeDir}/abc-token"; } (
    "agents.coder.credentials.token: ${builtins.storeDir}/abc-token would be a file in the Nix store, which every user can read. "
    + ''Write the place of the file on the machine as a string, for instance "/run/secrets/token".''
  );
  "a Nix path as credential" = one { secretEnvironment.KEY = /secret; } (
    "agents.coder.secretEnvironment.KEY: /secret would be a file in the Nix store, which every user can read. "
    + ''Write the place of the file on the machine as a string, for instance "/run/secrets/KEY".''
  );
  "a relative path as credential" = one { credentials.token = "token"; } (
    ''agents.coder.credentials.token: "token" is not the absolute path of a file, without ':' and '%'. ''
    + ''Write the place of the file on the machine as a string, for instance "/run/secrets/token".''
  );
  "a name that no file can have as credential" = one { credentials."a/b" = "/run/x"; } (
    ''agents.coder.credentials."a/b": the name of a credential is letters, digits, '_', '-' and '.', because it becomes ''
    + "the name of a file. Rename it."
  );
  "one name for two credentials" =
    one
      {
        credentials.KEY = "/a";
        secretEnvironment.KEY = "/b";
      }
      "agents.coder.secretEnvironment.KEY: is also the name of a credential of this agent. Rename the one in credentials.";
  "names that are no text of ASCII" =
    case
      (map
        (
          name:
          builtins.length (faultsOf {
            inherit name;
          })
        )
        [
          "ü"
          "a
b"
        ]
      )
      [
        1
        1
      ];
  "the slice of a name that is wrong is not told too" = case (builtins.length (
    core.agentFaults {
      option = "agents.ü";
      name = "ü";
      uid = 1000;
      agent = good // {
        limits = good.limits // {
          slice = core.defaultSlice "ü";
        };
      };
    }
  )) 1;
  "files with secrets in the store" =
    case
      (map
        (
          settings:
          builtins.length (faultsOf {
            inherit settings;
          })
        )
        [
          { auth.token_file = "/nix/store/abc-token"; }
          { auth.token_file = "/nix//store/abc-token"; }
          { environment.KEY.file = "/nix/store/abc"; }
          {
            loose_ends.sinks = [
              {
                type = "http";
                url = "http://127.0.0.1/";
                header_file = ./core_cases.nix;
              }
            ];
          }
          { auth.token_file = "/run/secrets/token"; }
        ]
      )
      [
        1
        1
        1
        1
        0
      ];
  "literal secrets by their names" =
    case
      (map
        (
          name:
          builtins.length (faultsOf {
            environment.${name} = "x";
          })
        )
        [
          "GITHUB_TOKEN"
          "AWS_SECRET_ACCESS_KEY"
          "api_key"
          "MAX_OUTPUT_TOKENS"
          "KEYBOARD"
        ]
      )
      [
        1
        1
        1
        0
        0
      ];
  "secrets of MCP servers" =
    case
      (map
        (
          server:
          builtins.length (faultsOf {
            mcpServers.docs = {
              availableToSubagents = true;
            }
            // server;
          })
        )
        [
          {
            inherit url;
            headers.Authorization = "Bearer sk-live";
          }
          {
            inherit url;
            headers.Authorization = "Bearer \${TOKEN}";
          }
          {
            command = "/bin/x";
            env.API_KEY = "x";
          }
          {
            command = "/bin/x";
            env.LANG = "C";
          }
          {
            command = "/bin/x";
            env.API_KEY = "x";
            availableToSubagents = false;
          }
        ]
      )
      [
        1
        0
        1
        0
        0
      ];
  "a secret of an MCP server" =
    one
      {
        mcpServers.docs = {
          inherit url;
          headers.Authorization = "Bearer sk-live";
          availableToSubagents = true;
        };
      }
      (
        "agents.coder.mcpServers.docs.headers.Authorization: looks like a secret, and this value would stand in the Nix store, "
        + "which every user can read. Write \"\${NAME}\" instead, and give subagents NAME by agents.coder.secretEnvironment."
      );
  "ports of others among themselves are not ours to tell" = case (core.portFaults (
    map (name: user name "127.0.0.1" 9000 // { isOurs = false; }) [
      "a"
      "b"
    ]
  )) [ ];
  "a secret in the store" = one { environment.ANTHROPIC_API_KEY = "sk-1"; } (
    "agents.coder.environment.ANTHROPIC_API_KEY: looks like a secret, and this value would stand in the Nix store, which "
    + "every user can read. Use secretEnvironment.ANTHROPIC_API_KEY with the path of a file that holds it, for instance "
    + ''"/run/secrets/ANTHROPIC_API_KEY".''
  );
  "a secret in the settings" =
    case
      (map builtins.length [
        (faultsOf { settings.environment.MY_PASSWORD = "x"; })
        (faultsOf { settings.environment.MY_PASSWORD.file = "/run/x"; })
      ])
      [
        1
        0
      ];
  "an address beyond this machine" = one { listenAddress = "0.0.0.0"; } (
    "agents.coder.listenAddress: 0.0.0.0 can be reached from other machines, and whoever may call can run code as the agent. "
    + ''Use "127.0.0.1" or "::1", or set settings.auth.token_file too.''
  );
  "an address with a token" = case (faultsOf {
    listenAddress = "0.0.0.0";
    settings.auth.token_file = "/run/x";
  }) [ ];
  "no address" =
    one { listenAddress = "localhost:1"; }
      ''agents.coder.listenAddress: "localhost:1" is not an IP address. Write one such as "127.0.0.1" or "::1", without a port.'';
  "a relative working directory" = one { workDir = "work"; } (
    ''agents.coder.workDir: "work" is not a directory that turns can work in. Write an absolute path outside of the Nix ''
    + ''store as a string, without "..", for instance "/home/alice/work".''
  );
  "a slice of no known form" = one { limits.slice = "agents"; } (
    ''agents.coder.limits.slice: "agents" is not the name of a slice of at most 140 bytes. Write a name ''
    + ''such as "agents.slice"; a dash in it nests it in another slice, and systemd-escape tells how to write one that does not.''
  );
  "a wrong type in the settings" = one {
    settings.limits.max_running = "eight";
  } ''agents.coder.settings.limits.max_running: must be a whole number of at least 1, not "eight".'';
  "a wrong word in the settings" = one {
    settings.on_restart = "keep";
  } ''agents.coder.settings.on_restart: must be "stop" or "adopt", not "keep".'';
  "a value in place of a set" = one {
    settings.limits = 3;
  } "agents.coder.settings.limits: must be a set, not 3.";
  "a setting that does not exist" =
    one { settings.retention.days = 3; }
      "agents.coder.settings.retention.days: there is no such setting. Known here: closed_days, idle_days.";
  "a setting that an option makes" = one {
    settings.listen = [ "127.0.0.1:1" ];
  } "agents.coder.settings.listen: is set by listenAddress and port of this agent. Use that instead.";
  "scopes of the system's manager for a plain user" = one { settings.scopes.manager = "system"; } (
    "agents.coder.settings.scopes.manager: only root can make scopes in the system manager. Leave it out: "
    + "turns then run in scopes of alice's own manager."
  );
  "two agents with one port" =
    case
      (core.portFaults [
        (user "a" "127.0.0.1" 20001)
        (user "b" "127.0.0.1" 20002)
        (user "c" "127.0.0.1" 20001)
      ])
      [
        (
          "agents.c.port: agent c would listen on port 20001, which is also that of agent a (agents.a.port). "
          + "Set one of these two options to a port that is free, for instance 20003."
        )
      ];
  "one port on two addresses" =
    case
      (map builtins.length [
        (core.portFaults [
          (user "a" "127.0.0.1" 20001)
          (user "b" "::1" 20001)
        ])
        (core.portFaults [
          (user "a" "127.0.0.1" 20001)
          (user "b" "0.0.0.0" 20001)
        ])
      ])
      [
        0
        1
      ];
  "a range of ports that outgoing connections use" =
    case
      (core.rangeFaults "portRange" {
        base = 30000;
        span = 10000;
      })
      [
        (
          "portRange: the ports 30000 to 39999 are not all between 1024 and 32767. "
          + "Choose base and span so that they are, for instance 20000 and 10000."
        )
      ];
  "a directory for two users" =
    case
      (core.directoryClashes [
        (plain // { workDir = "/srv/project"; })
        (other // { workDir = "/srv/project/"; })
      ])
      [
        (
          "agents.reviewer.workDir: /srv/project is to be made for bob, and also for alice, because of agent coder (agents.coder.workDir). "
          + "Give the two agents directories of their own, or make this one yourself, with rights for both, and set "
          + "agents.reviewer.createWorkDir = false."
        )
      ];
  "a directory on the way to another user's" =
    case
      (map builtins.length [
        (core.directoryClashes [
          (plain // { workDir = "/home/alice/a/b"; })
          (other // { workDir = "/home/alice/a"; })
        ])
        (core.directoryClashes [
          (plain // { workDir = "/home/alice/a"; })
          (
            other
            // {
              user = "alice";
              workDir = "/home/alice/a";
            }
          )
        ])
        (core.directoryClashes [
          (plain // { workDir = "/srv/agents/a"; })
          (other // { workDir = "/srv/agents/b"; })
        ])
      ])
      [
        1
        0
        0
      ];
  "two sums of one slice" =
    case
      (core.sharedSliceFaults [
        (
          plain
          // {
            slice = "agents.slice";
            sliceConfig = {
              MemoryMax = "8G";
              TasksMax = 5;
            };
          }
        )
        (
          other
          // {
            slice = "agents.slice";
            sliceConfig = {
              MemoryMax = "9G";
              TasksMax = 5;
            };
          }
        )
      ])
      [
        (
          "agents.reviewer.sliceConfig.MemoryMax: agent coder has another value (agents.coder.sliceConfig), and both share the slice "
          + "agents.slice. Leave the setting to one of them, or give each a slice of its own (limits.slice)."
        )
      ];
  "two sums of two slices, one of root" = case (core.sharedSliceFaults [
    (
      plain
      // {
        slice = "agents.slice";
        sliceConfig.MemoryMax = "8G";
      }
    )
    (
      other
      // {
        slice = "agents.slice";
        sliceConfig.MemoryMax = "9G";
        uid = 0;
      }
    )
    (
      other
      // {
        slice = "others.slice";
        sliceConfig.MemoryMax = "9G";
      }
    )
  ]) [ ];
}
