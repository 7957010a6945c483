# The daemon's configuration: which keys there are and what they may hold. The same table as the daemon's own,
# so that a mistake is found when the system is evaluated (a test compares the two).
let
  inherit (import ./lib.nix)
    concatMapToList
    filterAttrs
    optional
    optionals
    optionName
    shown
    ;
  inherit (import ./kinds.nix)
    aboveZero
    choice
    count
    environment
    faultsOf
    numberBetween
    numberFrom
    path
    seconds
    sizeFrom
    tokenFile
    truth
    uids
    umask
    ;
  inherit (import ./sinks.nix) sinks;
  inherit (import ./spelling.nix) hint;

  # A key that an option of this module sets.
  setBy = option: { inherit option; };
in
rec {
  # By section; "" are the keys outside of all sections.
  settingsKinds = {
    "" = {
      agent = setBy "the agent's name";
      claude = setBy "claudePackage";
      work_dir = setBy "workDir";
      listen = setBy "listenAddress and port";
      mcp_servers = setBy "mcpServers";
      state_dir = path;
      on_restart = choice [
        "stop"
        "adopt"
      ];
      allow_root = truth;
      inherit umask;
      idle_exit_seconds = seconds;
      log_level = choice [
        "debug"
        "info"
        "warning"
        "error"
      ];
      inherit environment;
    };
    retention = {
      closed_days = numberBetween 0 36500;
      idle_days = numberBetween 1 36500;
    };
    scopes = {
      manager = choice [
        "auto"
        "user"
        "system"
        "off"
      ];
      slice = setBy "limits.slice";
      memory_max = sizeFrom 1;
      memory_high = sizeFrom 1;
      memory_swap_max = sizeFrom 0;
      tasks_max = count;
      cpu_weight = numberBetween 1 10000;
      oom_policy = choice [
        "continue"
        "stop"
        "kill"
      ];
    };
    limits = {
      max_running = numberFrom 1;
      exit_grace_seconds = seconds;
      stall_after_seconds = seconds;
      max_prompt_bytes = numberBetween 1 10000000;
      timeout_seconds = aboveZero "seconds" 31536000;
      max_budget_usd = aboveZero "US dollars" 1000000;
      max_turns = numberBetween 1 1000000;
      max_depth = numberBetween 1 10;
    };
    auth = {
      token_file = tokenFile;
      allow_uids = uids;
    };
    loose_ends = { inherit sinks; };
  };

  settingsFaults =
    option: settings:
    concatMapToList (
      name: value:
      let
        place = "${option}.${optionName name}";
      in
      if settingsKinds."" ? ${name} then
        keyFaults settingsKinds."" option name value
      else if settingsKinds ? ${name} then
        if builtins.isAttrs value then
          concatMapToList (keyFaults settingsKinds.${name} place) value
        else
          [ "${place}: must be a set, not ${shown value}." ]
      else
        unknownFaults (builtins.attrNames (settingsKinds // settingsKinds."")) place name
    ) settings;

  keyFaults =
    kinds: option: name: value:
    let
      place = "${option}.${optionName name}";
      known = kinds.${name};
    in
    if !(kinds ? ${name}) then
      unknownFaults (builtins.attrNames kinds) place name
    else if known ? option then
      [ "${place}: is set by ${known.option} of this agent. Use that instead." ]
    else
      faultsOf known place value;

  unknownFaults =
    allowed: place: name:
    let
      known = builtins.filter (each: each != "") allowed;
    in
    [
      "${place}: there is no such setting.${hint known name} Known here: ${builtins.concatStringsSep ", " known}."
    ];

  # The options `limits` of every turn, which become settings of its scope.
  limitKeys = {
    MemoryMax = "memory_max";
    MemoryHigh = "memory_high";
    MemorySwapMax = "memory_swap_max";
    TasksMax = "tasks_max";
    CPUWeight = "cpu_weight";
    OOMPolicy = "oom_policy";
  };

  limitFaults =
    option: agent:
    let
      given = filterAttrs (name: _: limitKeys ? ${name}) (
        filterAttrs (_: value: value != null) agent.limits
      );
      scopes = if builtins.isAttrs (agent.settings.scopes or null) then agent.settings.scopes else { };
      useless = builtins.attrNames given ++ optionals (agent.sliceConfig != { }) [ "sliceConfig" ];
    in
    concatMapToList (
      name: faultsOf settingsKinds.scopes.${limitKeys.${name}} "${option}.limits.${name}"
    ) given
    ++ concatMapToList (
      name: _:
      optional (scopes ? ${limitKeys.${name}})
        "${option}.settings.scopes.${limitKeys.${name}}: is set by limits.${name} as well. Remove one of the two."
    ) given
    ++ optional (useless != [ ] && (scopes.manager or null) == "off") (
      "${option}.settings.scopes.manager: is \"off\", so turns have no scopes, and there is no limit: "
      + "${builtins.concatStringsSep ", " useless}. Leave it out, or remove the limits."
    );

  # Whether loose ends are sent anywhere: then the daemon has work to do before anybody calls.
  sinksIn =
    settings:
    builtins.isAttrs (settings.loose_ends or null) && (settings.loose_ends.sinks or [ ]) != [ ];

  environmentIn =
    settings: if builtins.isAttrs (settings.environment or null) then settings.environment else { };

  rootFaults =
    {
      option,
      agent,
      uid,
    }:
    optionals (uid == 0) (
      optional ((agent.settings.allow_root or false) != true) (
        "${
          agent.optionNames.user or "${option}.user"
        }: is root, and a subagent has all rights of its agent. Name another user, or say "
        + "${option}.settings.allow_root = true if root shall run claude."
      )
      ++ optional (
        agent.manager == "user"
      ) "${option}.manager: must be \"system\" for root, whose turns run in scopes of the system manager."
    )
    ++ optional (uid != 0 && (agent.settings.scopes.manager or null) == "system") (
      "${option}.settings.scopes.manager: only root can make scopes in the system manager. Leave it out: "
      + "turns then run in scopes of ${agent.user}'s own manager."
    );
}
