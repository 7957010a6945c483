# Secrets: they reach the daemon as systemd credentials and never enter the Nix store, which all users can read.
let
  inherit (import ./lib.nix)
    characters
    concatMapToList
    concatMapWithIndex
    dropPrefix
    filterAttrs
    hasPrefix
    isMatch
    optional
    optionalAttrs
    optionName
    ;
  inherit (import ./kinds.nix) variableName;
  inherit (import ./mcp.nix) optedIn;
  inherit (import ./names.nix) unitName;

  # Variables that claude and common services read their secrets from, and headers that carry them.
  secretVariable = ".*(API_?KEY|ACCESS_KEY|PRIVATE_KEY|SECRET_KEY|PASSWORD|PASSWD|SECRET)|(.*[_-])?TOKEN";
  secretHeader = ".*(AUTHORIZATION|COOKIE|KEY|TOKEN|SECRET).*";
  upper = builtins.replaceStrings (characters "abcdefghijklmnopqrstuvwxyz") (
    characters "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
  );

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

  sourceFaults =
    { isName, names }:
    option:
    concatMapToList (
      id: source:
      let
        place = "${option}.${optionName id}";
        advice = ''Write the place of the file on the machine as a string, for instance "/run/secrets/${id}".'';
      in
      optional (!isName id) "${place}: ${names}."
      ++ (
        if isInStore source then
          inStore place source advice
        else
          optional (!hasPrefix "/" source || isMatch ".*[\n:%].*" source)
            "${place}: ${builtins.toJSON source} is not the absolute path of a file, without ':' and '%'. ${advice}"
      )
    );

  # The files with secrets that settings name, by their places; none where the shape is not as it should be.
  filesIn =
    settings:
    let
      section = name: if builtins.isAttrs (settings.${name} or null) then settings.${name} else { };
      sinks = (section "loose_ends").sinks or [ ];
      variables = filterAttrs (_: value: builtins.isAttrs value && value ? file) (section "environment");
      headers = concatMapWithIndex (
        index: sink:
        optional (builtins.isAttrs sink && sink ? header_file) {
          name = "loose_ends.sinks[${toString index}].header_file";
          value = sink.header_file;
        }
      ) (if builtins.isList sinks then sinks else [ ]);
    in
    optionalAttrs ((section "auth") ? token_file) { "auth.token_file" = (section "auth").token_file; }
    // builtins.listToAttrs (
      headers
      ++ map (name: {
        name = "environment.${optionName name}.file";
        value = variables.${name}.file;
      }) (builtins.attrNames variables)
    );
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
  credentialFaults = sourceFaults {
    isName = isMatch "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    names = "the name of a credential is letters, digits, '_', '-' and '.', because it becomes the name of a file. Rename it";
  };

  # Given as { variable = where its value is; }.
  secretVariableFaults = sourceFaults {
    inherit (variableName) isName;
    names = "the name must be ${variableName.names}";
  };

  # Credentials of the service that settings name and nothing gives it.
  missingCredentialFaults =
    option: agent:
    let
      known = agent.credentials // agent.secretEnvironment;
      folder = agent.credentialsDirectory or "$CREDENTIALS_DIRECTORY";
      idIn = file: prefix: if hasPrefix "${prefix}/" file then dropPrefix "${prefix}/" file else null;
      idOf =
        file:
        if idIn file "$CREDENTIALS_DIRECTORY" != null then
          idIn file "$CREDENTIALS_DIRECTORY"
        else
          idIn file folder;
    in
    concatMapToList (
      place: file:
      let
        id = idOf file;
      in
      optional (builtins.isString file && id != null && !(known ? ${id})) (
        "${option}.${place}: the service has no credential ${builtins.toJSON id}. Set credentials.${optionName id} of this agent to the "
        + ''place of the file on the machine, for instance "/run/secrets/${id}".''
      )
    ) (filesIn agent.settings);

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
    concatMapToList (
      place: file:
      inStore "${option}.${place}" file
        ''Write the place of the file on the machine as a string, for instance "/run/secrets/NAME".''
    ) (filesIn settings);

  # Only what is opted in is written to the store here. claude replaces a variable in a value by its content, so a
  # value with one is no secret itself.
  serverSecretFaults =
    { option, secretEnvironment }:
    servers:
    let
      advice = "Write \"\${NAME}\" instead, and give subagents NAME by ${secretEnvironment}.";
      faults =
        place: pattern: values:
        concatMapToList (
          name: value:
          optional (
            builtins.isString value
            && value != ""
            && isMatch pattern (upper name)
            && !isMatch ".*[$][{].*" value
          ) (literal "${place}.${optionName name}" advice)
        ) (if builtins.isAttrs values then values else { });
    in
    concatMapToList (
      name: server:
      let
        place = "${option}.${optionName name}";
      in
      faults "${place}.env" secretVariable (server.env or null)
      ++ faults "${place}.headers" secretHeader (server.headers or null)
    ) (optedIn servers);
}
