# Names: of agents, of units, of slices.
let
  inherit (import ./lib.nix)
    characters
    concat
    isMatch
    optional
    optionName
    ;

  kept = "[A-Za-z0-9_.:]";
  longestSlice = 140;
  longestEscapedAgent = 80;
  hexDigits = characters "0123456789abcdef";

  # The printable ASCII characters and their codes; others cannot stand in an agent's name.
  printable = characters " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~";
  codes = builtins.listToAttrs (
    builtins.genList (index: {
      name = builtins.elemAt printable index;
      value = index + 32;
    }) (builtins.length printable)
  );
  hex =
    code: builtins.elemAt hexDigits (code / 16) + builtins.elemAt hexDigits (code - code / 16 * 16);
in
rec {
  # The stem of an agent's units.
  unitName = name: "hive-subagent-${name}";

  # A text as it may stand between the dashes of a unit name, as systemd-escape(1) writes it.
  escape =
    text:
    let
      all = characters text;
      one =
        index:
        let
          character = builtins.elemAt all index;
        in
        if isMatch kept character && !(index == 0 && character == ".") then
          character
        else
          "\\x${hex (codes.${character} or 63)}";
    in
    concat (builtins.genList one (builtins.length all));

  # The slice that holds all turns of an agent; the same name as the daemon's own default. A name that gets too
  # long by escaping is cut, never within an escape, and gets a hash.
  defaultSlice =
    name:
    let
      escaped = escape name;
      whole = builtins.substring 0 (longestEscapedAgent - 17) escaped;
      broken = builtins.match "(.*)\\\\[^\\\\]{0,2}" whole;
      head = if broken == null then whole else builtins.head broken;
      digest = builtins.substring 0 16 (builtins.hashString "sha256" name);
      shortened =
        if builtins.stringLength escaped > longestEscapedAgent then "${head}_${digest}" else escaped;
    in
    "hive\\x2dsubagent-${shortened}.slice";

  nameFaults =
    { option, name }:
    let
      spelt = concat (
        map (character: if isMatch "[A-Za-z0-9_.-]" character then character else "-") (characters name)
      );
      proposal = builtins.substring 0 63 (if isMatch "[.].*" spelt then "a${spelt}" else spelt);
    in
    optional (!isMatch "[A-Za-z0-9_-][A-Za-z0-9_.-]{0,62}" name) (
      "${option}: an agent's name stands in unit names and paths, so it is 1 to 63 letters, digits, '_', '-' and '.', "
      + "and does not begin with '.'."
      + (if name == "" then "" else " Name it, for instance, ${optionName proposal}.")
    );

  sliceFaults =
    option: slice:
    let
      part = "[A-Za-z0-9:_.\\\\]+";
    in
    optional (!isMatch "${part}(-${part})*[.]slice" slice || builtins.stringLength slice > longestSlice)
      (
        "${option}: ${builtins.toJSON slice} is not the name of a slice of at most ${toString longestSlice} bytes. Write a name "
        + ''such as "agents.slice"; a dash in it nests it in another slice, and systemd-escape tells how to write one that does not.''
      );

  uidFaults =
    {
      option,
      agent,
      uid,
    }:
    optional
      (uid == null && (agent.manager == "system" || agent.credentials // agent.secretEnvironment != { }))
      (
        "${
          agent.optionNames.user or "${option}.user"
        }: the user ${builtins.toJSON agent.user} is not declared or has no fixed uid, and the units need it "
        + "(user@UID.service, /run/user/UID). Set users.users.${optionName agent.user}.uid, for instance to 1000, or name another user."
      );
}
