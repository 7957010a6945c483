# The few helpers that the builtins lack.
rec {
  # The names of a set whose values pass, with their values.
  filterAttrs =
    keep: set:
    builtins.listToAttrs (
      builtins.concatMap (name: if keep name set.${name} then [ { inherit name; value = set.${name}; } ] else [ ]) (
        builtins.attrNames set
      )
    );

  mapToList = f: set: map (name: f name set.${name}) (builtins.attrNames set);

  concatMapToList = f: set: builtins.concatLists (mapToList f set);

  optional = condition: value: if condition then [ value ] else [ ];

  optionals = condition: values: if condition then values else [ ];

  optionalAttrs = condition: set: if condition then set else { };

  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;

  hasSuffix =
    suffix: text:
    let
      length = builtins.stringLength suffix;
      start = builtins.stringLength text - length;
    in
    start >= 0 && builtins.substring start length text == suffix;

  isMatch = pattern: text: builtins.match pattern text != null;

  characters = text: builtins.genList (index: builtins.substring index 1 text) (builtins.stringLength text);

  concat = builtins.concatStringsSep "";

  # A name of an option in a path for a reader: quoted where Nix needs it.
  optionName = name: if isMatch "[A-Za-z_][A-Za-z0-9_'-]*" name then name else builtins.toJSON name;

  # A value for a reader, one line; what it holds stays unseen unless it is plain.
  shown =
    value:
    {
      bool = if value == true then "true" else "false";
      int = toString value;
      float = toString value;
      string = builtins.toJSON value;
      null = "null";
      list = "a list";
      set = "a set";
      path = "the path ${toString value}";
    }
    .${builtins.typeOf value} or "a ${builtins.typeOf value}";

  quoted = words: builtins.concatStringsSep " or " (map builtins.toJSON words);
}
