# The daemon's configuration of one agent, ready to be written as TOML.
let
  inherit (import ./lib.nix) filterAttrs optionalAttrs;
  inherit (import ./mcp.nix) optedIn serverEntry;
  inherit (import ./names.nix) defaultSlice;
  inherit (import ./ports.nix) listenAddress;
  inherit (import ./settings.nix) limitKeys;

  limitsOf =
    limits:
    builtins.listToAttrs (
      map (option: {
        name = limitKeys.${option};
        value = limits.${option};
      }) (builtins.filter (option: limits.${option} != null) (builtins.attrNames limitKeys))
    );

  section =
    settings: name: if builtins.isAttrs (settings.${name} or null) then settings.${name} else { };
in
{
  # Given the agent's evaluated options, its name and uid, the program of claude and the credentials' directory.
  configurationOf =
    {
      name,
      uid,
      agent,
      claude,
      credentialsDirectory,
    }:
    let
      inherit (agent) settings limits;
      environment =
        agent.environment
        // builtins.mapAttrs (id: _: { file = "${credentialsDirectory}/${id}"; }) agent.secretEnvironment
        // section settings "environment";
      # The sums need the slice that the turns are in; the daemon has the same default name.
      slice = optionalAttrs (limits.slice != defaultSlice name) { inherit (limits) slice; };
      # Not `auto`: there is a manager, and turns without limits that were asked for would be a surprise.
      scopes = {
        manager = if uid == 0 then "system" else "user";
      }
      // limitsOf limits
      // slice
      // section settings "scopes";
      servers = builtins.mapAttrs (_: serverEntry) (optedIn agent.mcpServers);
    in
    filterAttrs (_: value: value != { }) (
      settings
      // {
        agent = name;
        inherit claude environment scopes;
        work_dir = agent.workDir;
        # What the socket has; in effect where the service is started without it.
        listen = [ (listenAddress agent.listenAddress agent.port) ];
        mcp_servers = servers;
      }
    );
}
