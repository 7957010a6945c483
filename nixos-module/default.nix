# Hive subagent daemons on a NixOS host: one for each agent, started by the first connection to its port.
#
# This file has the options and hands their values to core.nix, which computes everything. It takes no flake input.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  core = import ./core.nix;
  cfg = config.services.hive-subagent;
  toml = pkgs.formats.toml { };

  agents = lib.filterAttrs (_: agent: agent.enable) cfg.agents;
  optionOf = name: "services.hive-subagent.agents.${lib.strings.escapeNixIdentifier name}";
  accountOf = agent: config.users.users.${agent.user} or { };
  uidOf = agent: (accountOf agent).uid or null;

  configFileOf =
    name: agent:
    let
      file = toml.generate "hive-subagent-${name}.toml" (
        core.configurationOf {
          inherit name agent;
          inherit (agent) credentialsDirectory;
          uid = uidOf agent;
          claude = lib.getExe' agent.claudePackage "claude";
        }
      );
      # The daemon says more about a mistake than an evaluation can; it has to run on the building machine for that.
      checked = pkgs.runCommand "hive-subagent-${name}.toml" { } ''
        ${lib.getExe' cfg.package "hive-subagent-daemon"} --config ${file} --work-dir / --check >/dev/null
        cp ${file} $out
      '';
    in
    if agent.checkConfig && pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform then
      checked
    else
      file;

  # What core.unitsOf and its like want to know of an agent.
  plainAgent = name: agent: {
    inherit name;
    inherit (agent)
      manager
      port
      sliceConfig
      startAtBoot
      workDir
      ;
    inherit (agent.limits) slice;
    option = optionOf name;
    # NixOS lets a user have another name than its attribute.
    user = (accountOf agent).name or agent.user;
    group = (accountOf agent).group or null;
    home = (accountOf agent).home or null;
    address = agent.listenAddress;
    uid = uidOf agent;
    credentials = agent.credentials // agent.secretEnvironment;
    command = [
      (lib.getExe' cfg.package "hive-subagent-daemon")
      "--config"
      "${configFileOf name agent}"
    ];
    path = core.searchPath {
      user = (accountOf agent).name or agent.user;
      home = (accountOf agent).home or null;
      packages = map lib.getBin agent.extraPackages;
    };
    programs = {
      kill = "${pkgs.coreutils}/bin/kill";
      true = "${pkgs.coreutils}/bin/true";
      systemctl = "${config.systemd.package}/bin/systemctl";
    };
  };
  plainAgents = lib.mapAttrsToList plainAgent agents;
  toBeMade = lib.filter (agent: agents.${agent.name}.createWorkDir) plainAgents;

  units = core.unitsOf plainAgents;
  merged = manager: kind: lib.mapAttrs (_: gentle) units.${manager}.${kind};

  # Every single setting of a unit can be overridden by a plain definition in systemd.services and the like.
  gentle = lib.mapAttrs (
    key: value:
    if
      lib.elem key [
        "serviceConfig"
        "socketConfig"
        "sliceConfig"
        "unitConfig"
      ]
    then
      lib.mapAttrs (_: lib.mkDefault) value
    else if key == "environment" then
      # NixOS gives every service a PATH at the priority of a plain definition.
      lib.mapAttrs (name: if name == "PATH" then lib.mkOverride 90 else lib.mkDefault) value
    else if lib.isList value then
      value
    else
      lib.mkDefault value
  );

  portUsers = lib.mapAttrsToList (name: agent: {
    who = "the daemon of agent ${name}";
    option = agent.optionNames.port or "${optionOf name}.port";
    address = agent.listenAddress;
    inherit (agent) port;
  }) agents;

  homeWarnings =
    agent:
    let
      given = agents.${agent.name};
      # A user that is not declared is an error already.
      isUseless =
        agent.uid != null
        && lib.elem agent.home [
          "/var/empty"
          "/"
        ];
    in
    lib.optional (isUseless && !(given.environment ? CLAUDE_CONFIG_DIR)) (
      "${agent.option}.user: the home of ${agent.user} is ${agent.home}, where claude cannot keep its login and its sessions. "
      + "Set users.users.${given.user}.home (and createHome), or ${agent.option}.environment.CLAUDE_CONFIG_DIR."
    );

  faults =
    core.rangeFaults "services.hive-subagent.portRange" cfg.portRange
    ++ lib.concatLists (
      lib.mapAttrsToList (
        name: agent:
        core.agentFaults {
          inherit name agent;
          option = optionOf name;
          uid = uidOf agent;
        }
      ) agents
    )
    ++ core.portFaults (portUsers ++ cfg.otherPortUsers)
    ++ core.sharedSliceFaults plainAgents
    ++ core.directoryClashes toBeMade;
in
{
  imports = [ ./options.nix ];

  config = lib.mkIf (agents != { }) {
    assertions = map (message: {
      assertion = false;
      inherit message;
    }) faults;

    warnings = lib.concatMap homeWarnings plainAgents;

    # The command `hive-subagent`, for people.
    environment.systemPackages = [ cfg.package ];
    environment.extraInit = core.shellInit plainAgents;

    # For the agent's own claude, under /etc/hive-subagent: --mcp-config NAME.mcp.json --plugin-dir NAME.plugin
    environment.etc = lib.concatMapAttrs (
      name: agent:
      let
        daemon = {
          address = agent.listenAddress;
          inherit (agent) port;
        };
        program = lib.getExe' cfg.package "hive-subagent";
        hooks = builtins.toJSON (core.pluginHooks (daemon // { inherit program; }));
        plugin = core.pluginFiles // {
          "hooks/hooks.json" = hooks;
        };
      in
      {
        "hive-subagent/${name}.mcp.json".text = builtins.toJSON (core.parentConfig daemon);
      }
      // lib.mapAttrs' (
        path: text: lib.nameValuePair "hive-subagent/${name}.plugin/${path}" { inherit text; }
      ) plugin
    ) agents;

    # The user's own manager, in which turns have their scopes, is there without a login. (Where lingering is not
    # managed by NixOS, it takes no such definition.)
    users.users = lib.mkIf (config.users.manageLingering or true) (
      lib.mkMerge (
        lib.mapAttrsToList (
          _: agent: lib.mkIf (agent.user != "root") { ${agent.user}.linger = lib.mkDefault true; }
        ) agents
      )
    );

    systemd.tmpfiles.settings.hive-subagent = lib.mapAttrs' (
      path: owner:
      lib.nameValuePair (core.tmpfilesPath path) {
        # The colons: only where the directory is missing.
        d = lib.mapAttrs (_: lib.mkDefault) (
          {
            mode = ":0755";
            user = ":${owner.user}";
          }
          // lib.optionalAttrs (owner.group != null) { group = ":${owner.group}"; }
        );
      }
    ) (core.workDirectories toBeMade);

    systemd.services = merged "system" "services";
    systemd.sockets = merged "system" "sockets";
    systemd.slices = merged "system" "slices";
    systemd.user.services = merged "user" "services";
    systemd.user.sockets = merged "user" "sockets";
    systemd.user.slices = merged "user" "slices";
  };
}
