# The plugin for Claude Code, for an agent whose daemon has an address of its own: the hooks find program and daemon
# wherever claude is started. Its MCP server is left out: the agent has that as an entry of its own.
let
  ports = import ./ports.nix;
  given = builtins.fromJSON (builtins.readFile ../../plugin/hooks/hooks.json);
in
{
  # The content of hooks/hooks.json: of the plugin's own hooks, each with another command.
  pluginHooks =
    {
      program,
      address,
      port,
    }:
    let
      command = ''[ "$HIVE_SUBAGENT_TURN" ] || exec ${program} notices --url ${ports.url address port}'';
      group = each: each // { hooks = map (hook: hook // { inherit command; }) each.hooks; };
    in
    given // { hooks = builtins.mapAttrs (_: map group) given.hooks; };

  # What does not depend on the agent: the plugin's other files, as path and text.
  pluginFiles = builtins.listToAttrs (
    map
      (name: {
        inherit name;
        value = builtins.readFile (../../plugin + "/${name}");
      })
      [
        ".claude-plugin/plugin.json"
        "skills/claude-subagents/SKILL.md"
      ]
  );
}
