# The few helpers that the builtins lack.
rec {
  # The names of a set whose values pass, with their values.
  filterAttrs =
    keep: set:
    builtins.listToAttrs (
      builtins.concatMap (
        name:
        if keep name set.${name} then
          [
            {
              inherit name;
              value = set.${name};
            }
          ]
        else
          [ ]
      ) (builtins.attrNames set)
    );

  mapToList = f: set: map (name: f name set.${name}) (builtins.attrNames set);

  concatMapToList = f: set: builtins.concatLists (mapToList f set);

  optional = condition: value: if condition then [ value ] else [ ];

  optionals = condition: values: if condition then values else [ ];

  optionalAttrs = condition: set: if condition then set else { };

  hasPrefix = prefix: text: builtins.substring 0 (builtins.stringLength prefix) text == prefix;

  dropPrefix = prefix: builtins.substring (builtins.stringLength prefix) (-1);

  isMatch = pattern: text: builtins.match pattern text != null;

  characters =
    text: builtins.genList (index: builtins.substring index 1 text) (builtins.stringLength text);

  concat = builtins.concatStringsSep "";

  lower = builtins.replaceStrings (characters "ABCDEFGHIJKLMNOPQRSTUVWXYZ") (
    characters "abcdefghijklmnopqrstuvwxyz"
  );

  # The parts of a text between separators, which are plain characters.
  split = separator: text: builtins.filter builtins.isString (builtins.split separator text);

  # Each element with all that come before it.
  withEarlier =
    f: list:
    builtins.concatLists (
      builtins.genList (
        index: f (builtins.genList (builtins.elemAt list) index) (builtins.elemAt list index)
      ) (builtins.length list)
    );

  # What a function says of each element of a list, with the element's place.
  concatMapWithIndex =
    f: list:
    builtins.concatLists (
      builtins.genList (index: f index (builtins.elemAt list index)) (builtins.length list)
    );

  # A whole number of up to 15 digits, as text that may have leading zeros.
  number = digits: builtins.fromJSON (builtins.head (builtins.match "0*([0-9]+)" digits));

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
