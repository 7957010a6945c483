# Values that the daemon would refuse, found at the evaluation: what is said of each.
let
  core = import ../../nixos-module/core.nix;
  inherit ((import ./sample_agent.nix { name = "coder"; })) options;

  faultsOf =
    changes:
    core.agentFaults {
      option = "agents.coder";
      name = "coder";
      uid = 1000;
      agent = options // changes // { limits = options.limits // changes.limits or { }; };
    };
  counts = map (changes: builtins.length (faultsOf changes));
  case = value: expected: { inherit value expected; };
  one = changes: message: case (faultsOf changes) [ message ];
  sink = given: { settings.loose_ends.sinks = [ given ]; };
  http = given: sink ({ type = "http"; } // given);
  docs = given: { mcpServers.docs = given; };
  url = "http://127.0.0.1:9000/mcp";
in
{
  "a limit of zero" = one { limits.MemoryMax = 0; } (
    ''agents.coder.limits.MemoryMax: must be a number of bytes, or text such as "512M", "2G", "40%" or "infinity", not 0.''
  );
  "a limit beyond all there is" = one { limits.MemoryHigh = "900 %"; } (
    ''agents.coder.limits.MemoryHigh: must be a number of bytes, or text such as "512M", "2G", "40%" or "infinity", not "900 %".''
  );
  "a number of processes in bytes" =
    one { limits.TasksMax = "5K"; }
      ''agents.coder.limits.TasksMax: must be a number, or text such as "10%" or "infinity", not "5K".'';
  "limits that are fine" =
    case
      (counts (
        map (limits: { inherit limits; }) [
          { MemoryMax = "8388607T"; }
          { MemorySwapMax = 0; }
          { MemoryHigh = "40%"; }
          { TasksMax = "infinity"; }
        ]
      ))
      [
        0
        0
        0
        0
      ];
  "a limit that is set twice" =
    one
      {
        limits.MemoryMax = "4G";
        settings.scopes.memory_max = "5G";
      }
      "agents.coder.settings.scopes.memory_max: is set by limits.MemoryMax as well. Remove one of the two.";
  "limits without scopes" =
    one
      {
        limits.TasksMax = 5;
        sliceConfig.MemoryMax = "4G";
        settings.scopes.manager = "off";
      }
      (
        ''agents.coder.settings.scopes.manager: is "off", so turns have no scopes, and there is no limit: TasksMax, sliceConfig. ''
        + "Leave it out, or remove the limits."
      );
  "a sum by a name that systemd would ignore" = one { sliceConfig.memoryMax = "4G"; } (
    "agents.coder.sliceConfig.memoryMax: systemd would ignore it: its settings have names such as MemoryMax. "
    + "systemd.resource-control(5) lists them."
  );
  "a sum that systemd would ignore" = one { sliceConfig.MemoryMax = "900 %"; } (
    ''agents.coder.sliceConfig.MemoryMax: must be a number of at least 1, or text such as "2G", "40%" or "infinity", not "900 %".''
  );
  "sums that are fine" =
    case
      (counts (
        map (sliceConfig: { inherit sliceConfig; }) [
          { MemoryMax = "1.5G"; }
          { MemoryMax = "1G 500M"; }
          { MemorySwapMax = 0; }
          { TasksMax = 500; }
          { CPUQuota = "300%"; }
        ]
      ))
      [
        0
        0
        0
        0
        0
      ];

  "a variable that no shell passes on" = one { environment.MY-NAME = "x"; } (
    "agents.coder.environment.MY-NAME: the name must be a variable name of letters, digits and '_' that does not begin with a digit."
  );
  "a secret variable that no shell passes on" = one { secretEnvironment."MY.KEY" = "/run/x"; } (
    ''agents.coder.secretEnvironment."MY.KEY": the name must be a variable name of letters, digits and '_' that does not begin with a digit.''
  );
  "a file of a variable that is nowhere" = one { settings.environment.NAME.file = "name"; } (
    "agents.coder.settings.environment.NAME: must be a string, or { file = PATH; } with the absolute path of a file in a string, not a set."
  );

  "a token by a variable that is not known" = one { settings.auth.token_file = "$HOME/token"; } (
    ''agents.coder.settings.auth.token_file: must be a path in a string, or "$CREDENTIALS_DIRECTORY/NAME", not "$HOME/token".''
  );
  "a token in a credential that is not given" =
    one { settings.auth.token_file = "$CREDENTIALS_DIRECTORY/token"; }
      (
        ''agents.coder.settings.auth.token_file: the service has no credential "token". Set credentials.token of this agent to the ''
        + ''place of the file on the machine, for instance "/run/secrets/token".''
      );
  "a file in the folder of credentials that is not given" =
    case
      (counts [
        (
          http {
            inherit url;
            header_file = "/run/credentials/x/hook";
          }
          // {
            credentialsDirectory = "/run/credentials/x";
          }
        )
        (
          http {
            inherit url;
            header_file = "/run/credentials/x/hook";
          }
          // {
            credentialsDirectory = "/run/credentials/x";
            credentials.hook = "/run/secrets/hook";
          }
        )
      ])
      [
        1
        0
      ];
  "a Nix path in the settings is told once" =
    case
      (counts [
        { settings.auth.token_file = ./value_cases.nix; }
        (http {
          inherit url;
          header_file = ./value_cases.nix;
        })
        { settings.state_dir = ./value_cases.nix; }
      ])
      [
        1
        1
        1
      ];
  "names in place of uids" =
    one { settings.auth.allow_uids = [ "bob" ]; }
      "agents.coder.settings.auth.allow_uids: must be a list of uids, each a number from 0 to 4294967294, not a list.";

  "a sink of no type" = one (sink {
    inherit url;
  }) ''agents.coder.settings.loose_ends.sinks[0]: needs type = "command" or "http".'';
  "a sink of another type" = one (sink {
    type = "mail";
  }) ''agents.coder.settings.loose_ends.sinks[0].type: must be "command" or "http", not "mail".'';
  "a sink without its URL" = one (http
    { }
  ) ''agents.coder.settings.loose_ends.sinks[0]: needs url with type = "http".'';
  "a misspelt key of a sink" =
    one
      (http {
        inherit url;
        headerFile = "/x";
      })
      (
        "agents.coder.settings.loose_ends.sinks[0].headerFile: there is no such setting. Did you mean header_file? "
        + "Known here: type, url, header_file, name."
      );
  "a program for a sink that posts" = one (http {
    inherit url;
    argv = [ "x" ];
  }) ''agents.coder.settings.loose_ends.sinks[0].argv: does not go together with type = "http".'';
  "a sink with a password in its URL, which stays unseen" =
    one (http { url = "http://me:secret@x/"; })
      (
        "agents.coder.settings.loose_ends.sinks[0].url: must hold no user name and password: "
        + "put an Authorization header into a header_file."
      );
  "a sink that stands twice" =
    case
      (faultsOf {
        settings.loose_ends.sinks = [
          {
            type = "http";
            inherit url;
          }
          {
            type = "http";
            inherit url;
          }
        ];
      })
      [
        "agents.coder.settings.loose_ends.sinks[1]: is the same sink as an earlier one. Remove one of them, or give each its own name."
      ];
  "an argument that is none" = one (sink {
    type = "command";
    argv = [
      "/bin/x"
      5
    ];
  }) "agents.coder.settings.loose_ends.sinks[0].argv[1]: must be a string, not 5.";

  "a misspelt setting" = one { settings.log_levle = "debug"; } (
    "agents.coder.settings.log_levle: there is no such setting. Did you mean log_level? Known here: agent, allow_root, auth, claude, "
    + "environment, idle_exit_seconds, limits, listen, log_level, loose_ends, mcp_servers, on_restart, retention, scopes, state_dir, "
    + "umask, work_dir."
  );

  "misspelt keys of a server" =
    case
      (faultsOf (docs {
        inherit url;
        header.A = "b";
        available_to_subagents = true;
      }))
      [
        "agents.coder.mcpServers.docs.available_to_subagents: claude knows no such key. It must be spelt availableToSubagents."
        "agents.coder.mcpServers.docs.header: claude knows no such key. It must be spelt headers."
      ];
  "keys of a server that nobody knows yet" = case (counts [
    (docs {
      inherit url;
      oauth.scopes = [ "a" ];
      retries = 2.5;
      icon = ./value_cases.nix;
    })
  ]) [ 0 ];
  "a key of a server that no file can hold" =
    one
      (docs {
        inherit url;
        oauth.clientId = null;
      })
      (
        "agents.coder.mcpServers.docs.oauth.clientId: null cannot be written to the file of the daemon. Leave it out."
      );
  "a header of two lines" = one (docs {
    inherit url;
    headers.A = "b\nc";
  }) (''agents.coder.mcpServers.docs.headers.A: must be a string of one line, not "b\nc".'');
  "a switch that is none" = one (docs {
    inherit url;
    availableToSubagents = "yes";
  }) ''agents.coder.mcpServers.docs.availableToSubagents: must be true or false, not "yes".'';

  "spellings of addresses" =
    case
      (map
        (
          listenAddress:
          builtins.length (faultsOf {
            inherit listenAddress;
          })
        )
        [
          "127.0.0.1"
          "127.1.2.3"
          "0:0:0:0:0:0:0:1"
          "127.0.0.256"
          "127.0.0.01"
          "::ffff:7f00:1"
          ":::1"
          "fe80::1%eth0"
          "::"
        ]
      )
      [
        0
        0
        0
        1
        1
        1
        1
        1
        1
      ];
  "one IPv6 address in two spellings" = case (builtins.length (
    core.portFaults [
      {
        who = "a";
        option = "a";
        address = "::1";
        port = 1;
      }
      {
        who = "b";
        option = "b";
        address = "0:0:0:0:0:0:0:1";
        port = 1;
      }
    ]
  )) 1;
}
