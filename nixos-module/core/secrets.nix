# Secrets: they reach the daemon as systemd credentials and never enter the Nix store, which all users can read.
let
  inherit (import ./lib.nix)
    concatMapToList
    hasPrefix
    isMatch
    optional
    optionName
    ;
  inherit (import ./names.nix) unitName;

  # Variables that claude and common services read their secrets from.
  secretVariable = ".*(API_KEY|AUTH_TOKEN|OAUTH_TOKEN|ACCESS_TOKEN|PASSWORD|SECRET|PRIVATE_KEY)";
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
        isInStore = builtins.isPath source || hasPrefix "${builtins.storeDir}/" source;
        advice = ''Write the place of the file on the machine as a string, for instance "/run/secrets/${id}".'';
      in
      optional (!isMatch "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}" id) (
        "${place}: the name of a credential is letters, digits, '_', '-' and '.', because it becomes the name of a file. Rename it."
      )
      ++ (
        if isInStore then
          [ "${place}: ${toString source} would be a file in the Nix store, which every user can read. ${advice}" ]
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
      optional (builtins.isString value && isMatch secretVariable name) (
        "${option}.${optionName name}: looks like a secret, and this value would stand in the Nix store, which every user can read. "
        + ''Use secretEnvironment.${optionName name} with the path of a file that holds it, for instance "/run/secrets/${name}".''
      )
    ) environment;
}
