# MCP servers for subagents: only entries that are opted in reach the daemon's configuration.
let
  inherit (import ./lib.nix)
    concatMapToList
    filterAttrs
    hasPrefix
    isMatch
    optional
    optionals
    optionalAttrs
    optionName
    quoted
    shown
    ;
  inherit (import ./ports.nix) url;

  # What claude knows of an entry. Whatever else a module keeps in one stays with the module.
  clientKeys = [
    "type"
    "url"
    "command"
    "args"
    "env"
    "headers"
    "headersHelper"
    "timeout"
    "alwaysLoad"
  ];
  types = {
    url = [
      "http"
      "streamable-http"
      "sse"
      "ws"
    ];
    command = [ "stdio" ];
  };
  kinds = {
    type = "text";
    url = "text";
    command = "text";
    args = "texts";
    env = "table";
    headers = "table";
    headersHelper = "text";
    timeout = "number";
    alwaysLoad = "truth";
  };
  allowed = {
    text = "a string";
    texts = "a list of strings";
    table = "a set of strings";
    number = "a whole number of milliseconds, at least 1";
    truth = "true or false";
  };
  isKind = {
    text = builtins.isString;
    texts = value: builtins.isList value && builtins.all builtins.isString value;
    table = value: builtins.isAttrs value && builtins.all builtins.isString (builtins.attrValues value);
    number = value: builtins.isInt value && value >= 1;
    truth = builtins.isBool;
  };

  isEmpty = value: value == null || value == [ ] || value == { };

  isOn = entry: entry.enable or true;
in
rec {
  # The entry as claude would read it, without what is not set.
  clientEntry = filterAttrs (key: value: builtins.elem key clientKeys && !isEmpty value);

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
  optedIn = filterAttrs (_: entry: isOn entry && (entry.availableToSubagents or false));

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
    concatMapToList (name: entry: optionals (isOn entry) (entryFaults "${option}.${optionName name}" name entry)) servers;

  entryFaults =
    option: name: entry:
    let
      plain = clientEntry entry;
      typed = concatMapToList (
        key: value:
        optional (
          !isKind.${kinds.${key}} value
        ) "${option}.${key}: must be ${allowed.${kinds.${key}}}, not ${shown value}."
      ) plain;
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
      if typed != [ ] then
        typed
      else if both || !(plain ? url || plain ? command) then
        [
          (
            "${option}: needs exactly one of url and command, not ${if both then "both" else "none"}. "
            + "Set url for a server that is reached over HTTP, or command (with args and env) for a program that is started."
          )
        ]
      else
        opposed
        ++ optional (!knownType) "${option}.type: must be ${quoted types.${way}} with ${way}, not ${shown plain.type}."
        ++ optional (knownType && plain ? url && !hasScheme plain) "${option}.url: must begin with ${schemes plain}, not ${shown plain.url}."
    );

  # Subagents that start subagents are another depth, which has to be allowed too.
  depthFaults =
    option: agent:
    let
      own = agent.mcpServers.subagent or { };
      limits = agent.settings.limits or { };
      depth = if builtins.isAttrs limits && builtins.isInt (limits.max_depth or null) then limits.max_depth else 1;
    in
    optional (optedIn { subagent = own; } != { } && depth < 2) (
      "${option}.mcpServers.subagent.availableToSubagents: lets subagents start subagents, which needs "
      + "${option}.settings.limits.max_depth = 2 (or more) as well. Set that too, or leave this false."
    );

  schemes = plain: if (plain.type or "http") == "ws" then "ws:// or wss://" else "http:// or https://";

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
