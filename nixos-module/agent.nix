# The agent's side: one daemon for the agent that this system is for, an entry for it among the agent's MCP
# servers, and the choice which of these servers subagents get too.
#
# `hyperhive.extraMcpServers` may be declared elsewhere as well, as an attrsOf submodule: the declarations merge.
{
  config,
  lib,
  options,
  ...
}:
let
  inherit (lib) mkOption types literalExpression;
  core = import ./core.nix;
  mcp = config.hyperhive.mcp;
  cfg = mcp.subagent;
  # A key that another module declares is no slip of the user's, however near it is to one of ours.
  servers = lib.mapAttrs (
    _: server: removeAttrs server (lib.filter (key: core.meantKey key != null) (lib.attrNames leaves))
  ) config.hyperhive.extraMcpServers;

  own = config.services.hive-subagent.agents.${cfg.agent};
  address = core.url own.listenAddress own.port;
  # The entry of the daemon itself: every leaf a default of its own, so that overriding one keeps the others. Some
  # agents know only servers that they start: for them there is the bridge.
  entryOverHttp = {
    type = "http";
    url = address;
    allowedTools = [ "*" ];
  };
  entryOfBridge = {
    type = "stdio";
    command = lib.getExe' config.services.hive-subagent.package "hive-subagent";
    args = [
      "mcp"
      "--url"
      address
    ];
    allowedTools = [ "*" ];
  };

  # What other modules declare of an entry. Where they do, that is all an entry can have, unless theirs are open, too;
  # else anything goes.
  declaredElsewhere =
    leaves:
    removeAttrs leaves [
      "_freeformOptions"
      "_module"
      "availableToSubagents"
    ];

  entry =
    { options, ... }:
    {
      options.availableToSubagents = mkOption {
        type = types.bool;
        default = false;
        example = true;
        description = ''
          Whether subagents of this agent get this MCP server too. Without a single such entry they have none.
        '';
      };
      config._module.freeformType = lib.mkIf (declaredElsewhere options == { }) (
        lib.mkDefault (types.attrsOf types.anything)
      );
    };

  leaves = declaredElsewhere (options.hyperhive.extraMcpServers.type.getSubOptions [ ]);
  isOpen =
    (options.hyperhive.extraMcpServers.type.nestedTypes.elemType.nestedTypes or { }) ? freeformType;
  canHave = key: isOpen || leaves == { } || leaves ? ${key};
  ownEntry = lib.filterAttrs (key: _: canHave key) (
    if canHave "url" then entryOverHttp else entryOfBridge
  );
  canHaveEntry = canHave "url" || (canHave "command" && canHave "args");

  # Other ports of `hyperhive.mcp`: they are on the same loopback address.
  otherPorts = lib.filterAttrs (
    name: value: lib.hasSuffix "HttpPort" name && name != "subagentHttpPort" && lib.isInt value
  ) mcp;

  # What is wrong with an entry, by the names of the options here; only what is well is handed on.
  faultsOf =
    name: server:
    if name == "subagent" && (server.enable or true) != false && core.clientEntry server == { } then
      [
        "hyperhive.extraMcpServers.subagent: nothing is left in it. To have no such entry, set hyperhive.mcp.subagent.addMcpServer = false."
      ]
    else
      core.mcpFaults {
        option = "hyperhive.extraMcpServers";
        secretEnvironment = "services.hive-subagent.agents.${lib.strings.escapeNixIdentifier cfg.agent}.secretEnvironment";
      } { ${name} = server; };
  opted = lib.filterAttrs (
    name: server: server.availableToSubagents && faultsOf name server == [ ]
  ) servers;

  # Entries that subagents do not get are left alone where other modules have options of their own for them.
  isKnownForm = leaves == { } || leaves ? url || leaves ? command;
  judged = lib.filterAttrs (_: server: isKnownForm || server.availableToSubagents) servers;
in
{
  # By the path that a host imports, so that a system with both has it once.
  imports = [ ./. ];

  options.hyperhive = {
    mcp = {
      subagent = {
        enable = mkOption {
          type = types.bool;
          default = true;
          example = false;
          description = "Whether this agent can start subagents: runs the daemon and adds it to the agent's MCP servers.";
        };
        agent = mkOption {
          type = types.str;
          default = if config.networking.hostName == "" then "agent" else config.networking.hostName;
          defaultText = literalExpression "config.networking.hostName";
          example = "coder";
          description = "The agent's name, in unit names and in the journal. The default port is computed from it.";
        };
        user = mkOption {
          type = types.str;
          default = cfg.agent;
          defaultText = literalExpression "config.hyperhive.mcp.subagent.agent";
          example = "alice";
          description = "User that the agent runs as, and so do its subagents. Must be declared, with a `uid`.";
        };
        plugin = mkOption {
          type = types.str;
          readOnly = true;
          default = "/etc/hive-subagent/${cfg.agent}.plugin";
          defaultText = literalExpression ''"/etc/hive-subagent/''${config.hyperhive.mcp.subagent.agent}.plugin"'';
          description = ''
            Plugin for Claude Code: hooks that wake the agent when a turn of a subagent has ended, and a skill. For
            whatever starts the agent's claude: `--plugin-dir`. The MCP server is not in it, but an entry of the agent.
          '';
        };
        addMcpServer = mkOption {
          type = types.bool;
          default = true;
          example = false;
          description = "Whether the daemon is added as `hyperhive.extraMcpServers.subagent`.";
        };
      };
      subagentHttpPort = mkOption {
        type = types.ints.between 1 65535;
        default = core.portOf { inherit (config.services.hive-subagent.portRange) base span; } cfg.agent;
        defaultText = literalExpression "computed from hyperhive.mcp.subagent.agent, within services.hive-subagent.portRange";
        example = 20123;
        description = ''
          Port of the agent's daemon. Agents that are evaluated separately cannot see each other's ports: where several
          of them share a network, set them explicitly.
        '';
      };
    };

    # No description and no default: an option that is declared elsewhere too can have them only once.
    extraMcpServers = mkOption { type = types.attrsOf (types.submodule entry); };
  };

  config = {
    assertions = lib.mkIf cfg.enable (
      map (message: {
        assertion = false;
        inherit message;
      }) (lib.concatLists (lib.mapAttrsToList faultsOf judged))
    );
    warnings = lib.mkIf (cfg.enable && cfg.addMcpServer && !canHaveEntry) [
      (
        "hyperhive.extraMcpServers: servers have neither url nor command and args here, so the daemon of this agent was not added to them. "
        + "Start claude with --mcp-config /etc/hive-subagent/${cfg.agent}.mcp.json, and set "
        + "hyperhive.mcp.subagent.addMcpServer = false to silence this."
      )
    ];

    hyperhive.extraMcpServers = lib.mkIf (cfg.enable && cfg.addMcpServer && canHaveEntry) {
      subagent = lib.mapAttrs (_: lib.mkDefault) ownEntry;
    };

    services.hive-subagent = lib.mkIf cfg.enable {
      agents.${cfg.agent} = {
        user = lib.mkDefault cfg.user;
        port = lib.mkDefault mcp.subagentHttpPort;
        optionNames = {
          agent = "hyperhive.mcp.subagent.agent";
          mcpServers = "hyperhive.extraMcpServers";
          user = "hyperhive.mcp.subagent.user";
          port = "hyperhive.mcp.subagentHttpPort";
        };
        mcpServers = lib.mapAttrs (
          _: server:
          core.clientEntry server
          // {
            availableToSubagents = true;
            enable = (server.enable or true) != false;
          }
        ) opted;
      };
      otherPortUsers = lib.mapAttrsToList (name: port: {
        who = "hyperhive.mcp.${name}";
        option = "hyperhive.mcp.${name}";
        address = "127.0.0.1";
        inherit port;
        isOurs = false;
      }) otherPorts;
    };
  };
}
