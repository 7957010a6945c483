# Slices: the sums of agents' turns. Several agents may share one.
#
# An agent here is { option, name, uid, slice, sliceConfig }.
let
  inherit (import ./lib.nix)
    concatMapToList
    filterAttrs
    isMatch
    mapToList
    optional
    optionName
    shown
    withEarlier
    ;

  # Turns of root are in slices of the system's manager, all others in those of users' managers.
  isOfRoot = agent: agent.uid == 0;
  isShared = one: other: one.slice == other.slice && isOfRoot one == isOfRoot other;
in
{
  # What the agents with a sum make of it: { system, user }, each { NAME = { description, sliceConfig }; }.
  slicesOf =
    agents:
    let
      withSum = builtins.filter (agent: agent.sliceConfig != { }) agents;
      stemOf = agent: builtins.head (builtins.match "(.*)[.]slice" agent.slice);
      made = all: builtins.mapAttrs (_: sliceOf) (builtins.groupBy stemOf all);
      sliceOf = sharing: {
        description = "Subagents of ${builtins.concatStringsSep " and " (map (agent: agent.name) sharing)}";
        # Equal settings may stand with each of them.
        sliceConfig = builtins.foldl' (all: agent: agent.sliceConfig // all) { } sharing;
      };
    in
    {
      system = made (builtins.filter isOfRoot withSum);
      user = made (builtins.filter (agent: !isOfRoot agent) withSum);
    };

  sliceConfigFaults =
    option: sliceConfig:
    concatMapToList (
      name: value:
      let
        place = "${option}.${optionName name}";
        isSize = isMatch "Memory(Max|High|Low|Min|SwapMax)|TasksMax" name;
        lowest = if isMatch "MemoryMax|MemoryHigh|TasksMax" name then 1 else 0;
        size = "([0-9]+([.][0-9]+)?[BKMGTPE]?( +|$))+";
        percent = "([0-9]{1,2}([.][0-9]{1,2})?|100([.]0{1,2})?)%";
        isGood =
          if builtins.isString value then
            isMatch "infinity|${percent}|${size}" value && !(lowest == 1 && isMatch "0+[BKMGTPE%]?" value)
          else
            builtins.isInt value && value >= lowest;
      in
      if !isMatch "[A-Z][A-Za-z0-9]*" name then
        [
          "${place}: systemd would ignore it: its settings have names such as MemoryMax. systemd.resource-control(5) lists them."
        ]
      else
        optional (isSize && !isGood)
          ''${place}: must be a number of at least ${toString lowest}, or text such as "2G", "40%" or "infinity", not ${shown value}.''
    ) sliceConfig;

  # One slice cannot have two values of one setting.
  sharedSliceFaults = withEarlier (
    earlier: agent:
    builtins.concatMap (
      other:
      mapToList
        (
          key: _:
          "${agent.option}.sliceConfig.${optionName key}: agent ${other.name} has another value (${other.option}.sliceConfig), and both share the slice "
          + "${agent.slice}. Leave the setting to one of them, or give each a slice of its own (limits.slice)."
        )
        (
          filterAttrs (
            key: value: other.sliceConfig ? ${key} && other.sliceConfig.${key} != value
          ) agent.sliceConfig
        )
    ) (builtins.filter (isShared agent) earlier)
  );
}
