# What the modules compute, without the module system: builtins only, plain data in, plain data out.
# So it can be evaluated and tested wherever there is a Nix, without nixpkgs.
#
# Functions whose names end in `Faults` return what is wrong as a list of sentences, each of which begins with
# the path of the option and says what to write instead. An empty list: all is well.
let
  kinds = import ./core/kinds.nix;
  names = import ./core/names.nix;
  ports = import ./core/ports.nix;
  mcp = import ./core/mcp.nix;
  plugin = import ./core/plugin.nix;
  settings = import ./core/settings.nix;
  configuration = import ./core/configuration.nix;
  secrets = import ./core/secrets.nix;
  directories = import ./core/directories.nix;
  slices = import ./core/slices.nix;
  shell = import ./core/shell.nix;
  units = import ./core/units.nix;
  text = import ./core/text.nix;
in
rec {
  inherit (names) defaultSlice;
  inherit (directories)
    directoryClashes
    tmpfilesPath
    workDirectories
    ;
  inherit (slices) sharedSliceFaults;
  inherit (shell) shellInit;
  inherit (ports)
    defaultRange
    listenAddressFaults
    portFaults
    portOf
    rangeFaults
    url
    ;
  inherit (mcp)
    clientEntry
    meantKey
    optedIn
    parentConfig
    serverEntry
    serverFaults
    ;
  inherit (plugin) pluginFiles pluginHooks;
  inherit (settings) settingsFaults settingsKinds sinksIn;
  inherit (configuration) configurationOf;
  inherit (secrets) credentialsDirectory;
  inherit (units)
    execLine
    searchPath
    service
    unitsOf
    ;
  inherit (text) unitFiles;

  # Everything that is wrong with MCP servers, by the option that they are in. A secret in one is told where the rest
  # is well.
  mcpFaults =
    places: servers:
    let
      faults = mcp.serverFaults places.option servers;
    in
    if faults != [ ] then faults else secrets.serverSecretFaults places servers;

  # Everything that is wrong with one agent, given as the agent's evaluated options and its name.
  agentFaults =
    {
      option,
      name,
      agent,
      uid,
    }:
    (
      let
        faults = names.nameFaults {
          option = agent.optionNames.agent or option;
          inherit name;
        };
      in
      # The default of the slice follows the name.
      if faults == [ ] then names.sliceFaults "${option}.limits.slice" agent.limits.slice else faults
    )
    ++ names.uidFaults { inherit option agent uid; }
    ++ ports.listenAddressFaults {
      option = "${option}.listenAddress";
      address = agent.listenAddress;
      inherit (agent) settings;
    }
    ++ directories.directoryFaults "${option}.workDir" agent.workDir
    ++ slices.sliceConfigFaults "${option}.sliceConfig" agent.sliceConfig
    ++ settings.limitFaults option agent
    ++ kinds.faultsOf kinds.environment "${option}.environment" agent.environment
    ++ secrets.credentialFaults "${option}.credentials" agent.credentials
    ++ secrets.secretVariableFaults "${option}.secretEnvironment" agent.secretEnvironment
    ++ secrets.sharedIdFaults option agent
    ++ secrets.literalSecretFaults "${option}.environment" agent.environment
    ++ secrets.literalSecretFaults "${option}.settings.environment" (
      settings.environmentIn agent.settings
    )
    ++ secrets.settingsFileFaults "${option}.settings" agent.settings
    ++ secrets.missingCredentialFaults "${option}.settings" agent
    ++ mcpFaults {
      option = "${option}.mcpServers";
      secretEnvironment = "${option}.secretEnvironment";
    } agent.mcpServers
    ++ mcp.depthFaults option agent
    ++ settings.settingsFaults "${option}.settings" agent.settings
    ++ settings.rootFaults { inherit option agent uid; };
}
