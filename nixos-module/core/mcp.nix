# MCP servers for subagents: only entries that are opted in reach the daemon's configuration.
let
  inherit (import ./lib.nix)
    concatMapToList
    concatMapWithIndex
    filterAttrs
    hasPrefix
    isMatch
    optional
    optionals
    optionName
    quoted
    shown
    ;
  inherit (import ./kinds.nix)
    faultsOf
    numberBetween
    plainText
    tableOf
    text
    texts
    truth
    ;
  inherit (import ./ports.nix) url;
  inherit (import ./spelling.nix) meant;

  # What the modules keep in an entry, which is not for claude.
  moduleKinds = {
    enable = truth;
    availableToSubagents = truth;
    allowedTools = texts;
  };
  # What claude is known to know. Other keys are passed on: its format grows.
  clientKinds = {
    type = text;
    url = text;
    command = text;
    args = texts;
    env = tableOf {
      names = "a variable name, not empty and without '='";
      isName = isMatch "[^=]+";
    } plainText;
    headers = tableOf {
      names = "the name of an HTTP header";
      isName = isMatch "[A-Za-z0-9!#$%&'*+.^_`|~-]+";
    } headerValue;
    headersHelper = text;
    # Milliseconds for a timer of 31 bits.
    timeout = numberBetween 1 2147483647;
    alwaysLoad = truth;
  };
  headerValue = {
    allowed = "a string of one line";
    check = value: builtins.isString value && builtins.length (builtins.split "[\n\r]" value) == 1;
  };
  types = {
    url = [
      "http"
      "streamable-http"
      "sse"
      "ws"
    ];
    command = [ "stdio" ];
  };

  # Some module may leave it null.
  isOn = entry: (entry.enable or true) != false;

  # A derivation, or whatever else Nix makes a string of.
  isLikeText = value: value ? outPath || value ? __toString;

  # What a file of TOML and one of JSON can hold, at any depth.
  plainFaults =
    depth: place: value:
    if depth > 20 then
      [ "${place}: is nested more than 20 levels deep." ]
    else if builtins.isList value then
      concatMapWithIndex (index: plainFaults (depth + 1) "${place}[${toString index}]") value
    else if builtins.isAttrs value && !isLikeText value then
      concatMapToList (name: plainFaults (depth + 1) "${place}.${optionName name}") value
    else
      optional (
        value == null || builtins.isFunction value
      ) "${place}: ${shown value} cannot be written to the file of the daemon. Leave it out.";
in
rec {
  # The entry as claude would read it: without what is not set, and without what the modules keep in it.
  clientEntry =
    entry:
    filterAttrs (
      key: value: value != null && !(clientKinds ? ${key} && (value == [ ] || value == { }))
    ) (removeAttrs entry (builtins.attrNames moduleKinds));

  # The key that a misspelt one was probably meant to be, or null.
  meantKey = meant (builtins.attrNames (moduleKinds // clientKinds));

  # The keys that do not go together with `url`, and with `command`.
  opposedKeys = {
    url = [
      "args"
      "env"
    ];
    command = [
      "headers"
      "headersHelper"
    ];
  };

  # The entries that subagents get.
  optedIn = filterAttrs (_: entry: isOn entry && (entry.availableToSubagents or false) == true);

  # An entry of `[mcp_servers]` in the daemon's configuration. claude drops a remote entry without `type`.
  serverEntry =
    entry:
    let
      plain = clientEntry entry;
    in
    { type = if plain ? url then "http" else "stdio"; } // plain // { available_to_subagents = true; };

  # What the parent itself needs to reach its daemon, as the content of a file for `--mcp-config`.
  parentConfig =
    { address, port }:
    {
      mcpServers.subagent = {
        type = "http";
        url = url address port;
      };
    };

  serverFaults =
    option: servers:
    concatMapToList (
      name: entry:
      let
        place = "${option}.${optionName name}";
        ofModule = filterAttrs (key: _: moduleKinds ? ${key}) entry;
        switches = concatMapToList (
          key: value: optionals (value != null) (faultsOf moduleKinds.${key} "${place}.${key}" value)
        ) ofModule;
      in
      if switches != [ ] then switches else optionals (isOn entry) (entryFaults place name entry)
    ) servers;

  entryFaults =
    option: name: entry:
    let
      plain = clientEntry entry;
      keyFaults =
        key: value:
        let
          known = meantKey key;
        in
        if clientKinds ? ${key} then
          faultsOf clientKinds.${key} "${option}.${key}" value
        else if known != null then
          [ "${option}.${optionName key}: claude knows no such key. It must be spelt ${known}." ]
        else
          plainFaults 0 "${option}.${optionName key}" value;
      faults = concatMapToList keyFaults plain;
      way = if plain ? url then "url" else "command";
      both = plain ? url && plain ? command;
      opposed = map (key: "${option}.${key}: does not go together with ${way}. Remove one of the two.") (
        builtins.filter (key: plain ? ${key}) opposedKeys.${way}
      );
      knownType = !(plain ? type) || builtins.elem plain.type types.${way};
    in
    optional (!isMatch "[A-Za-z0-9_-]+" name) (
      "${option}: the name of an MCP server is letters, digits, '_' and '-', because it becomes part of the names of its tools. Rename it."
    )
    ++ (
      if faults != [ ] then
        faults
      else if both || !(plain ? url || plain ? command) then
        [
          (
            "${option}: needs exactly one of url and command, not ${if both then "both" else "none"}. "
            + "Set url for a server that is reached over HTTP, or command (with args and env) for a program that is started."
          )
        ]
      else
        opposed
        ++ optional (
          !knownType
        ) "${option}.type: must be ${quoted types.${way}} with ${way}, not ${shown plain.type}."
        ++ optional (
          knownType && plain ? url && !hasScheme plain
        ) "${option}.url: must begin with ${schemes plain}, not ${shown plain.url}."
    );

  # Subagents that start subagents are another depth, which has to be allowed too.
  depthFaults =
    option: agent:
    let
      own = agent.mcpServers.subagent or { };
      limits = agent.settings.limits or { };
      depth =
        if builtins.isAttrs limits && builtins.isInt (limits.max_depth or null) then
          limits.max_depth
        else
          1;
      servers = agent.optionNames.mcpServers or "${option}.mcpServers";
    in
    optional (optedIn { subagent = own; } != { } && depth < 2) (
      "${servers}.subagent.availableToSubagents: lets subagents start subagents, which needs "
      + "${option}.settings.limits.max_depth = 2 (or more) as well. Set that too, or leave this false."
    );

  schemes =
    plain: if (plain.type or "http") == "ws" then "ws:// or wss://" else "http:// or https://";

  # claude expands ${VAR} in a URL, so that its scheme may be unknown here.
  hasScheme =
    plain:
    isMatch ".*[$][{].*" plain.url
    || builtins.any (scheme: hasPrefix scheme plain.url) (
      if (plain.type or "http") == "ws" then
        [
          "ws://"
          "wss://"
        ]
      else
        [
          "http://"
          "https://"
        ]
    );
}
