# What a value must be: in words, and as a function. The same verdicts as the daemon's (a test compares them), so
# that a mistake is found when the system is evaluated.
#
# A kind has `allowed` and `check`, or `faultsAt`, where single parts of a value have places of their own.
let
  inherit (import ./lib.nix)
    concatMapToList
    hasPrefix
    isMatch
    number
    optional
    optionName
    quoted
    shown
    ;

  kind = allowed: check: { inherit allowed check; };

  isText = value: builtins.isString value && !isMatch "[[:space:]]*" value;
  isNumber = value: builtins.isInt value || builtins.isFloat value;
  # Only `~` and `~/` are expanded.
  isPath = value: isText value && (!hasPrefix "~" value || value == "~" || hasPrefix "~/" value);
  isAbsolute = value: isPath value && (hasPrefix "/" value || hasPrefix "~" value);
  # A Nix path has a message of its own, where secrets are looked for.
  orNixPath = check: value: builtins.isPath value || check value;

  # The highest number that fits into 63 bits with each unit; there are 15 digits at most.
  highest = {
    "" = 999999999999999;
    K = 999999999999999;
    M = 8796093022207;
    G = 8589934591;
    T = 8388607;
  };
  # systemd takes no limit below 1 but for swap.
  isAmount =
    lowest: units: value:
    let
      parts = builtins.match "([0-9]{1,15})([KMGT%]?)" value;
      count = number (builtins.head parts);
      unit = builtins.elemAt parts 1;
    in
    if builtins.isInt value then
      value >= lowest
    else if !builtins.isString value then
      false
    else if value == "infinity" then
      true
    else if parts == null then
      false
    else if unit == "%" then
      1 <= count && count <= 100
    else
      builtins.elem unit units && lowest <= count && count <= highest.${unit};
in
rec {
  # What is wrong with a value, as a list of sentences that begin with its place.
  faultsOf =
    kind: place: value:
    if kind ? faultsAt then
      kind.faultsAt place value
    else
      optional (!kind.check value) "${place}: must be ${kind.allowed}, not ${shown value}.";

  text = kind "a string with something in it" isText;
  plainText = kind "a string" builtins.isString;
  truth = kind "true or false" builtins.isBool;
  choice = words: kind (quoted words) (value: builtins.elem value words);
  numberFrom =
    lowest:
    kind "a whole number of at least ${toString lowest}" (
      value: builtins.isInt value && value >= lowest
    );
  numberBetween =
    lowest: highest:
    kind "a whole number from ${toString lowest} to ${toString highest}" (
      value: builtins.isInt value && lowest <= value && value <= highest
    );
  aboveZero =
    unit: highest:
    kind "a number of ${unit} above 0, up to ${toString highest}" (
      value: isNumber value && value > 0 && value <= highest
    );
  seconds = kind "a number of seconds from 0 to 31536000" (
    value: isNumber value && 0 <= value && value <= 31536000
  );
  umask = kind ''octal digits in a string, from "0000" to "0777"'' (
    value: builtins.isString value && isMatch "0?[0-7]{1,3}" value
  );

  sizeFrom =
    lowest:
    kind ''a number of bytes, or text such as "512M", "2G", "40%" or "infinity"'' (
      isAmount lowest [
        ""
        "K"
        "M"
        "G"
        "T"
      ]
    );
  count = kind ''a number, or text such as "10%" or "infinity"'' (isAmount 1 [ "" ]);

  path = kind ''a path in a string, in which only a leading "~/" is expanded'' isPath;
  absolutePath = kind ''the absolute path of a file, in a string such as "/run/secrets/NAME"'' (
    orNixPath isAbsolute
  );
  # A credential of the service by its name, or a path.
  tokenFile = kind ''a path in a string, or "$CREDENTIALS_DIRECTORY/NAME"'' (
    orNixPath (
      value:
      isPath value
      && (
        !hasPrefix "$" value || isMatch "[$]CREDENTIALS_DIRECTORY/([^/.]|[^/]{3,}|[^/.][^/]|[.][^/.])" value
      )
    )
  );
  program = kind "the name or the path of a program" (
    value: isText value && (isPath value || !isMatch ".*/.*" value)
  );

  texts = kind "a list of strings" (
    value: builtins.isList value && builtins.all builtins.isString value
  );
  uids = kind "a list of uids, each a number from 0 to 4294967294" (
    value:
    builtins.isList value
    && builtins.all (each: builtins.isInt each && 0 <= each && each <= 4294967294) value
  );

  # A set whose names the user chooses.
  tableOf =
    { names, isName }:
    kind: {
      inherit (kind) allowed;
      faultsAt =
        place: value:
        if !builtins.isAttrs value then
          [ "${place}: must be a set, not ${shown value}." ]
        else
          concatMapToList (
            name: each:
            optional (!isName name) "${place}.${optionName name}: the name must be ${names}."
            ++ faultsOf kind "${place}.${optionName name}" each
          ) value;
    };

  # A turn's variables pass through a shell.
  variableName = {
    names = "a variable name of letters, digits and '_' that does not begin with a digit";
    isName = isMatch "[A-Za-z_][A-Za-z0-9_]*";
  };

  environment =
    let
      allowed = "a string, or { file = PATH; } with the absolute path of a file in a string";
    in
    tableOf variableName (
      kind allowed (
        value:
        builtins.isString value
        || (
          builtins.isAttrs value && builtins.attrNames value == [ "file" ] && absolutePath.check value.file
        )
      )
    );
}
