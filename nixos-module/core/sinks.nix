# Where loose ends are sent: `settings.loose_ends.sinks`, with the same verdicts as the daemon's.
let
  inherit (import ./lib.nix)
    concatMapToList
    concatMapWithIndex
    hasPrefix
    isMatch
    lower
    number
    optional
    optionName
    quoted
    shown
    split
    ;
  inherit (import ./addresses.nix) isV6;
  inherit (import ./kinds.nix)
    absolutePath
    faultsOf
    plainText
    program
    ;
  inherit (import ./spelling.nix) hint;

  most = 32;
  needed = {
    http = "url";
    command = "argv";
  };
  optionalKeys = {
    http = [
      "header_file"
      "name"
    ];
    command = [ "name" ];
  };
  keysOf =
    type:
    [
      "type"
      needed.${type}
    ]
    ++ optionalKeys.${type};

  # No message shows a URL: its path or query may be a secret.
  urlForm = ''"http://HOST:PORT/PATH", "https://…", "unix:/SOCKET" or "unix:/SOCKET:/PATH"'';
  socketWords = "must name a Unix socket by its absolute path of at most 107 bytes";
  isSocket = path: (hasPrefix "/" path || hasPrefix "~/" path) && builtins.stringLength path <= 107;
  # Up to the first ":/", which begins the path of the request.
  socketOf = url: builtins.head (split ":/" (builtins.substring 5 (-1) url));

  # Why a URL is refused, or null.
  urlFault =
    url:
    let
      parts = builtins.match "([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)[^#]*(#.*)?" url;
      scheme = lower (builtins.head parts);
      authority = builtins.elemAt parts 1;
      fragment = builtins.elemAt parts 2;
      hostAndPort = builtins.match "([[][0-9A-Fa-f:.]+[]]|[^]:[]+)(:([0-9]{0,15}))?" authority;
      # In brackets stands an IPv6 address, whose end may be written as an IPv4 one.
      inner = builtins.match "[[](.*)[]]" (builtins.head hostAndPort);
      isHost = inner == null || isMatch ".*:.*[.].*" (builtins.head inner) || isV6 (builtins.head inner);
      port = builtins.elemAt hostAndPort 2;
      isPort = port == null || port == "" || (1 <= number port && number port <= 65535);
    in
    if !isMatch "[!-~]+" url then
      "must be a URL in visible ASCII, everything else percent-encoded"
    else if hasPrefix "unix:" url then
      if isSocket (socketOf url) then null else socketWords
    else if
      parts == null
      || !builtins.elem scheme [
        "http"
        "https"
        "http+unix"
      ]
    then
      "must be ${urlForm}"
    else if isMatch ".*@.*" authority then
      "must hold no user name and password: put an Authorization header into a header_file"
    else if !(fragment == null || fragment == "#") then
      "must have no fragment (#…), which is never sent"
    else if scheme == "http+unix" then
      if isMatch "(%2[Ff]|~).*" authority then null else socketWords
    else if hostAndPort == null || !isHost || !isPort then
      "must be a URL with a host, and with a port from 1 to 65535 if any"
    else
      null;

  kinds = {
    url.faultsAt =
      place: url:
      let
        fault = urlFault url;
      in
      if !builtins.isString url then
        [ "${place}: must be ${urlForm}, not ${builtins.typeOf url}." ]
      else
        optional (fault != null) "${place}: ${fault}.";
    header_file = absolutePath;
    name = {
      allowed = "1 to 63 letters, digits, '_', '.' and '-', the first one a letter or digit";
      check = value: builtins.isString value && isMatch "[A-Za-z0-9][A-Za-z0-9_.-]{0,62}" value;
    };
    argv.faultsAt =
      place: value:
      if !builtins.isList value || value == [ ] then
        [
          "${place}: must be a list of strings, the program and then its arguments, not ${
            if value == [ ] then "an empty one" else shown value
          }."
        ]
      else
        concatMapWithIndex (
          index: faultsOf (if index == 0 then program else plainText) "${place}[${toString index}]"
        ) value;
  };

  sinkFaults =
    place: sink:
    let
      type = sink.type or null;
      types = builtins.attrNames needed;
      known = keysOf type;
      unknown = builtins.filter (key: !builtins.elem key known) (builtins.attrNames sink);
      isOfOther = key: builtins.elem key (keysOf "http" ++ keysOf "command");
    in
    if !builtins.isAttrs sink then
      [ ''${place}: must be a set with type = "http" or type = "command", not ${shown sink}.'' ]
    else if !(builtins.isString type && builtins.elem type types) then
      [
        (
          if type == null then
            "${place}: needs type = ${quoted types}."
          else
            "${place}.type: must be ${quoted types}, not ${shown type}."
        )
      ]
    else
      optional (
        !(sink ? ${needed.${type}})
      ) "${place}: needs ${needed.${type}} with type = ${builtins.toJSON type}."
      ++ map (
        key:
        "${place}.${optionName key}: "
        + (
          if isOfOther key then
            "does not go together with type = ${builtins.toJSON type}."
          else
            "there is no such setting.${hint known key} Known here: ${builtins.concatStringsSep ", " known}."
        )
      ) unknown
      ++ concatMapToList (
        key: value:
        if key == "type" || builtins.elem key unknown then
          [ ]
        else
          faultsOf kinds.${key} "${place}.${key}" value
      ) sink;

  # What the daemon knows a sink by.
  idOf =
    sink:
    if !builtins.isAttrs sink then
      null
    else if sink ? name then
      [ sink.name ]
    else
      [
        (sink.type or null)
        (sink.url or sink.argv or null)
      ];
in
{
  sinks.faultsAt =
    place: value:
    let
      each = index: "${place}[${toString index}]";
      isKnownEarlier =
        index: sink:
        let
          earlier = builtins.genList (builtins.elemAt value) index;
        in
        optional
          (sinkFaults (each index) sink == [ ] && builtins.any (other: idOf other == idOf sink) earlier)
          "${each index}: is the same sink as an earlier one. Remove one of them, or give each its own name.";
    in
    if !builtins.isList value then
      [ "${place}: must be a list of sets, not ${shown value}." ]
    else if builtins.length value > most then
      [ "${place}: must be at most ${toString most} sinks, not ${toString (builtins.length value)}." ]
    else
      concatMapWithIndex (index: sink: sinkFaults (each index) sink ++ isKnownEarlier index sink) value;
}
