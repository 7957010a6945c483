# The daemon's configuration: which keys there are and what they may hold. The same table as the daemon's own,
# so that a mistake is found when the system is evaluated (a test compares the two).
let
  inherit (import ./lib.nix)
    concatMapToList
    isMatch
    optional
    optionals
    optionName
    quoted
    shown
    ;

  # What a value must be, in words and as a function.
  kind = allowed: check: { inherit allowed check; };

  text = kind "a string with something in it" (value: builtins.isString value && !isMatch "[[:space:]]*" value);
  truth = kind "true or false" builtins.isBool;
  choice = words: kind (quoted words) (value: builtins.elem value words);
  numberFrom =
    lowest: kind "a whole number of at least ${toString lowest}" (value: builtins.isInt value && value >= lowest);
  numberBetween =
    lowest: highest:
    kind "a whole number from ${toString lowest} to ${toString highest}" (
      value: builtins.isInt value && lowest <= value && value <= highest
    );
  isNumber = value: builtins.isInt value || builtins.isFloat value;
  seconds = kind "a number of seconds from 0 to 31536000" (value: isNumber value && 0 <= value && value <= 31536000);
  # systemd takes no limit below 1 but for swap.
  amountOf =
    lowest: unit: allowed:
    let
      leading = if lowest == 0 then "" else "0*[1-9]";
    in
    kind allowed (
      value:
      (builtins.isInt value && value >= lowest)
      || (
        builtins.isString value
        && (
          value == "infinity"
          || (isMatch "[0-9]{1,15}${unit}" value && isMatch "${leading}[0-9]*${unit}" value)
          || isMatch "([1-9]|[1-9][0-9]|100)%" value
        )
      )
    );
  sizeFrom = lowest: amountOf lowest "[KMGT]?" ''a number of bytes, or text such as "512M", "2G", "40%" or "infinity"'';
  amount = sizeFrom 1;
  count = amountOf 1 "" ''a number, or text such as "10%" or "infinity"'';
  texts = kind "a list of strings, not empty" (
    value: builtins.isList value && value != [ ] && builtins.all text.check value
  );
  uids = kind "a list of uids" (value: builtins.isList value && builtins.all (each: builtins.isInt each && each >= 0) value);
  tables = kind "a list of sets" (value: builtins.isList value && builtins.all builtins.isAttrs value);
  environment = kind "a set; each value a string or { file = PATH; }" (
    value:
    builtins.isAttrs value
    && builtins.all (
      each: builtins.isString each || (builtins.isAttrs each && builtins.attrNames each == [ "file" ] && text.check each.file)
    ) (builtins.attrValues value)
  );
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
      state_dir = text;
      on_restart = choice [
        "stop"
        "adopt"
      ];
      allow_root = truth;
      umask = kind ''octal digits in a string, from "0000" to "0777"'' (
        value: builtins.isString value && isMatch "0?[0-7]{1,3}" value
      );
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
      memory_max = amount;
      memory_high = amount;
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
      timeout_seconds = seconds;
      max_budget_usd = kind "an amount of at least 0" (value: isNumber value && value >= 0);
      max_turns = numberFrom 1;
      max_depth = numberFrom 0;
    };
    auth = {
      token_file = text;
      allow_uids = uids;
    };
    loose_ends.sinks = tables;
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
        unknownFaults (builtins.attrNames (settingsKinds // settingsKinds."")) place
    ) settings;

  keyFaults =
    kinds: option: name: value:
    let
      place = "${option}.${optionName name}";
      known = kinds.${name};
    in
    if !(kinds ? ${name}) then
      unknownFaults (builtins.attrNames kinds) place
    else if known ? option then
      [ "${place}: is set by ${known.option} of this agent. Use that instead." ]
    else
      optional (!known.check value) "${place}: must be ${known.allowed}, not ${shown value}.";

  unknownFaults = allowed: place: [
    "${place}: there is no such setting. Known here: ${
      builtins.concatStringsSep ", " (builtins.filter (name: name != "") allowed)
    }."
  ];

  # Whether loose ends are sent anywhere: then the daemon has work to do before anybody calls.
  sinksIn = settings: builtins.isAttrs (settings.loose_ends or null) && (settings.loose_ends.sinks or [ ]) != [ ];

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
        "${agent.optionNames.user or "${option}.user"}: is root, and a subagent has all rights of its agent. Name another user, or say "
        + "${option}.settings.allow_root = true if root shall run claude."
      )
      ++ optional (agent.manager == "user") "${option}.manager: must be \"system\" for root, whose turns run in scopes of the system manager."
    )
    ++ optional (uid != 0 && (agent.settings.scopes.manager or null) == "system") (
      "${option}.settings.scopes.manager: only root can make scopes in the system manager. Leave it out: "
      + "turns then run in scopes of ${agent.user}'s own manager."
    );
}
