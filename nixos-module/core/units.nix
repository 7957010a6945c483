# The units of one agent, in the shape of NixOS's systemd options. They say the same as the unit files that
# `hive-subagent-daemon units` prints (a test compares the two).
let
  inherit (import ./lib.nix)
    isMatch
    optional
    optionalAttrs
    ;
  inherit (import ./names.nix) unitName;
  inherit (import ./ports.nix) listenAddress;
  inherit (import ./slices.nix) slicesOf;

  # Command lines: systemd expands % and $ in them.
  quoteArgument =
    argument:
    let
      escaped = builtins.replaceStrings [ "%" "$" ] [ "%%" "$$" ] argument;
    in
    if isMatch "[A-Za-z0-9_./:@=+,-]+" argument then argument else builtins.toJSON escaped;

  escapePercent = builtins.replaceStrings [ "%" ] [ "%%" ];

  isOfRoot = agent: agent.uid == 0;
  hasUserManager = agent: agent.manager == "system" && !isOfRoot agent;
in
rec {
  execLine = arguments: builtins.concatStringsSep " " (map quoteArgument arguments);

  # Where turns find programs: as in a login shell of NixOS, and the agent's own packages before the shared ones.
  searchPath =
    {
      user,
      home,
      packages,
    }:
    builtins.concatStringsSep ":" (
      [ "/run/wrappers/bin" ]
      ++ map (package: "${package}/bin") packages
      ++ optional (home != null) "${home}/.nix-profile/bin"
      ++ optional (home != null) "${home}/.local/state/nix/profile/bin"
      ++ [
        "/etc/profiles/per-user/${user}/bin"
        "/nix/var/nix/profiles/default/bin"
        "/run/current-system/sw/bin"
      ]
    );

  # An agent here is { name, user, uid, manager, address, port, command, path, credentials, startAtBoot, slice,
  # sliceConfig, programs }: `command` is the daemon's command line as a list, `programs` has the paths of kill,
  # systemctl and true.
  service =
    agent:
    let
      unit = unitName agent.name;
      userManager = optional (hasUserManager agent) "user@${toString agent.uid}.service";
      isSystem = agent.manager == "system";
    in
    {
      description = "Hive subagent daemon of ${agent.name}";
      requires = [ "${unit}.socket" ] ++ userManager;
      # At a shutdown the bus goes later: by it the daemon asks whether it is stopped, and has scopes ended.
      after = [
        "${unit}.socket"
        "dbus.service"
      ]
      ++ userManager;
      wantedBy = optional agent.startAtBoot (if isSystem then "multi-user.target" else "default.target");
      # With a start limit the socket would fail together with the service, and refuse every caller.
      startLimitIntervalSec = 0;
      # A switch restarts a changed daemon instead of stopping it, so that it can hand over turns (on_restart).
      stopIfChanged = false;
      unitConfig = optionalAttrs (!isSystem) { ConditionUser = agent.user; };
      environment = {
        PATH = escapePercent agent.path;
      }
      // optionalAttrs (hasUserManager agent) { XDG_RUNTIME_DIR = "/run/user/${toString agent.uid}"; };
      serviceConfig = {
        Type = "notify";
        NotifyAccess = "main";
        ExecStart = execLine agent.command;
        ExecReload = "${agent.programs.kill} -HUP $MAINPID";
        # The pace of attempts while connections wait and the daemon cannot start.
        Restart = "on-failure";
        RestartSec = "2s";
        # It first ends and reports what a crash left behind, and may have to wait for the user's manager.
        TimeoutStartSec = "2min";
        # A stop interrupts what runs and stores how it ended, within 15 s.
        TimeoutStopSec = "30s";
        KillMode = "mixed";
        WatchdogSec = "60s";
        # The daemon has to outlive the OOM kill of a process, to report it.
        OOMPolicy = "continue";
        # Turns inherit what the service has. So only what an agent's own shell can live with stands here; their
        # umask is set anew.
        UMask = "0077";
        LimitCORE = 0;
        LimitNOFILE = "8192:524288";
        KeyringMode = "private";
      }
      // optionalAttrs isSystem {
        User = agent.user;
        WorkingDirectory = "~";
        StateDirectory = "hive-subagent/${agent.name}";
        StateDirectoryMode = "0700";
        OOMScoreAdjust = -500;
      }
      // optionalAttrs (agent.credentials != { }) {
        LoadCredential = map (id: "${id}:${agent.credentials.${id}}") (
          builtins.attrNames agent.credentials
        );
      };
    };

  socket = agent: {
    description = "Hive subagent daemon of ${agent.name} (socket)";
    wantedBy = [ "sockets.target" ];
    # Every user's manager reads the units of all agents: without this the first one takes the port.
    unitConfig = optionalAttrs (agent.manager == "user") { ConditionUser = agent.user; };
    listenStreams = [ (listenAddress agent.address agent.port) ];
    # The daemon accepts all connections itself. Those that come while it restarts wait in the kernel.
    socketConfig.Accept = false;
  };

  # A switch does not act on changed sockets: after the daemon-reload they listen nowhere. A change of the address
  # reloads this unit instead, which restarts the socket and, since that requires it, the service.
  addressWatch =
    agent:
    let
      unit = unitName agent.name;
    in
    {
      description = "Restart ${unit}.socket when its address changes";
      wantedBy = [ "multi-user.target" ];
      reloadTriggers = [ (listenAddress agent.address agent.port) ];
      serviceConfig = {
        Type = "oneshot";
        RemainAfterExit = true;
        ExecStart = agent.programs.true;
        ExecReload = execLine [
          agent.programs.systemctl
          "try-restart"
          "${unit}.socket"
        ];
      };
    };

  # All units of some agents, as { system, user }, each { services, sockets, slices }.
  unitsOf =
    agents:
    let
      of = manager: builtins.filter (agent: agent.manager == manager) agents;
      merged = f: chosen: builtins.foldl' (all: agent: all // f agent) { } chosen;
      sockets = merged (agent: {
        ${unitName agent.name} = socket agent;
      });
      services = merged (agent: {
        ${unitName agent.name} = service agent;
      });
      watches = merged (agent: {
        "hive-subagents-address-${agent.name}" = addressWatch agent;
      });
      slices = slicesOf agents;
    in
    {
      system = {
        services = services (of "system") // watches (of "system");
        sockets = sockets (of "system");
        slices = slices.system;
      };
      user = {
        services = services (of "user");
        sockets = sockets (of "user");
        slices = slices.user;
      };
    };
}
