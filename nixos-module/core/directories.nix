# Working directories of agents: what is wrong with one, and which folders have to be made for them.
#
# An agent here is { option, name, user, group, home, workDir }; `home` and `group` may be null.
let
  inherit (import ./lib.nix)
    hasPrefix
    optional
    split
    withEarlier
    ;

  parts = path: builtins.filter (part: part != "") (split "/" path);
  joined = list: "/" + builtins.concatStringsSep "/" list;
  beginnings =
    list:
    builtins.genList (index: builtins.genList (builtins.elemAt list) (index + 1)) (
      builtins.length list
    );

  # Below the home every folder on the way is the user's, too: systemd-tmpfiles would leave them to root, and
  # refuses to go on below such a folder. The home itself is made with the user.
  madeFor =
    agent:
    let
      directory = parts agent.workDir;
      home = if agent.home == null then [ ] else parts agent.home;
      isBelow = list: hasPrefix "${joined home}/" (joined list);
    in
    if directory == [ ] || directory == home then
      [ ]
    else if home != [ ] && isBelow directory then
      map joined (builtins.filter isBelow (beginnings directory))
    else
      [ (joined directory) ];
in
{
  directoryFaults =
    option: directory:
    optional
      (
        !hasPrefix "/" directory
        || hasPrefix "${builtins.storeDir}/" directory
        || builtins.length (builtins.split "\n" directory) > 1
        || builtins.any (part: part == "." || part == "..") (split "/" directory)
      )
      (
        "${option}: ${builtins.toJSON directory} is not a directory that turns can work in. Write an absolute path outside of the Nix "
        + ''store as a string, without "..", for instance "/home/alice/work".''
      );

  # The folders that are to be made, each with the agent whose user gets it.
  workDirectories =
    agents:
    builtins.listToAttrs (
      builtins.concatMap (
        agent:
        map (name: {
          inherit name;
          value = agent;
        }) (madeFor agent)
      ) agents
    );

  # One folder cannot belong to two users.
  directoryClashes = withEarlier (
    earlier: agent:
    let
      sharedWith = other: builtins.filter (path: builtins.elem path (madeFor other)) (madeFor agent);
      others = builtins.filter (other: other.user != agent.user && sharedWith other != [ ]) earlier;
      other = builtins.head others;
    in
    optional (others != [ ]) (
      "${agent.option}.workDir: ${builtins.head (sharedWith other)} is to be made for ${agent.user}, and also for ${other.user}, because of agent "
      + "${other.name} (${other.option}.workDir). Give the two agents directories of their own, or make this one yourself, with rights "
      + "for both, and set ${agent.option}.createWorkDir = false."
    )
  );

  # A path as systemd.tmpfiles.settings writes it, in quotes, to a file of rules.
  tmpfilesPath = builtins.replaceStrings [ "\\" "%" "'" ] [ "\\\\" "%%" "\\'" ];
}
