# What a login shell has to know.
let
  inherit (import ./lib.nix) concat mapToList optional;
  inherit (import ./ports.nix) url;

  quoted = word: "'${builtins.replaceStrings [ "'" ] [ "'\\''" ] word}'";
  line =
    agent:
    "  ${quoted agent.user}) export HIVE_SUBAGENT_URL=\"\${HIVE_SUBAGENT_URL:-${url agent.address agent.port}}\" ;;\n";
in
{
  # For the command `hive-subagent`: where the daemon of the user's agent is. Who has several agents has to say which.
  shellInit =
    agents:
    let
      ofUser = builtins.groupBy (agent: agent.user) agents;
      lines = concat (
        mapToList (_: own: concat (optional (builtins.length own == 1) (line (builtins.head own)))) ofUser
      );
    in
    if lines == "" then "" else "case \"\${USER-}\" in\n${lines}esac\n";
}
