# Secrets: they reach the daemon as systemd credentials and never enter the Nix store, which all users can read.
let
  inherit (import ./lib.nix)
    characters
    concatMapToList
    hasPrefix
    isMatch
    optional
    optionName
    ;
  inherit (import ./names.nix) unitName;

  # Variables that claude and common services read their secrets from, and headers that carry them.
  secretVariable = ".*(API_?KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY|PASSWORD|PASSWD|SECRET)|(.*[_-])?TOKEN";
  secretHeader = ".*(AUTHORIZATION|COOKIE|KEY|TOKEN|SECRET).*";
  upper = builtins.replaceStrings (characters "abcdefghijklmnopqrstuvwxyz") (characters "ABCDEFGHIJKLMNOPQRSTUVWXYZ");

  # Also one that is spelt with more slashes than it needs, and a Nix path, which is copied there.
  isInStore =
    source:
    builtins.isPath source
    || (builtins.isString source && isMatch "/+nix/+store/.*" source)
    || (builtins.isString source && hasPrefix "${builtins.storeDir}/" source);
  inStore =
    place: source: advice:
    optional (isInStore source) "${place}: ${toString source} would be a file in the Nix store, which every user can read. ${advice}";

  literal =
    place: advice:
    "${place}: looks like a secret, and this value would stand in the Nix store, which every user can read. ${advice}";
in
{
  # Where the service finds its credentials; systemd chooses the place by the unit's name.
  credentialsDirectory =
    {
      name,
      manager,
      uid,
    }:
    if manager == "system" then
      "/run/credentials/${unitName name}.service"
    else
      "/run/user/${toString uid}/credentials/${unitName name}.service";

  # Given as { id = where the secret is; }.
  credentialFaults =
    option: credentials:
    concatMapToList (
      id: source:
      let
        place = "${option}.${optionName id}";
        advice = ''Write the place of the file on the machine as a string, for instance "/run/secrets/${id}".'';
      in
      optional (!isMatch "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}" id) (
        "${place}: the name of a credential is letters, digits, '_', '-' and '.', because it becomes the name of a file. Rename it."
      )
      ++ (
        if isInStore source then
          inStore place source advice
        else
          optional (!hasPrefix "/" source || isMatch ".*[\n:%].*" source)
            "${place}: ${builtins.toJSON source} is not the absolute path of a file, without ':' and '%'. ${advice}"
      )
    ) credentials;

  # Both sets become credentials of one service.
  sharedIdFaults =
    option:
    { credentials, secretEnvironment, ... }:
    concatMapToList (
      id: _:
      optional (credentials ? ${id}) (
        "${option}.secretEnvironment.${optionName id}: is also the name of a credential of this agent. Rename the one in credentials."
      )
    ) secretEnvironment;

  literalSecretFaults =
    option: environment:
    concatMapToList (
      name: value:
      optional (builtins.isString value && isMatch secretVariable (upper name)) (
        literal "${option}.${optionName name}" ''Use secretEnvironment.${optionName name} with the path of a file that holds it, for instance "/run/secrets/${name}".''
      )
    ) environment;

  # Files that settings name: their content is secret.
  settingsFileFaults =
    option: settings:
    let
      advice = ''Write the place of the file on the machine as a string, for instance "/run/secrets/NAME".'';
      section = name: if builtins.isAttrs (settings.${name} or null) then settings.${name} else { };
      sinks = (section "loose_ends").sinks or [ ];
    in
    inStore "${option}.auth.token_file" ((section "auth").token_file or null) advice
    ++ concatMapToList (
      name: value:
      if builtins.isAttrs value then inStore "${option}.environment.${optionName name}.file" (value.file or null) advice else [ ]
    ) (section "environment")
    ++ builtins.concatMap (
      sink: if builtins.isAttrs sink then inStore "${option}.loose_ends.sinks: header_file" (sink.header_file or null) advice else [ ]
    ) (if builtins.isList sinks then sinks else [ ]);

  # claude replaces a variable in a value by its content, so a value with one is no secret itself.
  serverSecretFaults =
    option: servers:
    let
      advice = "Write \"\${NAME}\" instead, and give NAME by secretEnvironment.";
      faults =
        place: pattern: values:
        concatMapToList (
          name: value:
          optional (
            builtins.isString value && value != "" && isMatch pattern (upper name) && !isMatch ".*[$][{].*" value
          ) (literal "${place}.${optionName name}" advice)
        ) (if builtins.isAttrs values then values else { });
    in
    concatMapToList (
      name: server:
      let
        place = "${option}.${optionName name}";
      in
      faults "${place}.env" secretVariable (server.env or null) ++ faults "${place}.headers" secretHeader (server.headers or null)
    ) servers;
}
