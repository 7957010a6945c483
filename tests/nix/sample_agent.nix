# An agent as the core wants to know it, with nothing asked for but what must be there: the base of all cases.
{ name }:
let
  core = import ../../nixos-module/core.nix;
in
{
  # Its options, as the option layer evaluates them.
  options = {
    user = "alice";
    manager = "system";
    listenAddress = "127.0.0.1";
    port = core.portOf core.defaultRange name;
    startAtBoot = false;
    workDir = "/srv/work";
    environment = { };
    secretEnvironment = { };
    credentials = { };
    settings = { };
    mcpServers = { };
    sliceConfig = { };
    limits = {
      slice = core.defaultSlice name;
      MemoryMax = null;
      MemoryHigh = null;
      MemorySwapMax = null;
      TasksMax = null;
      CPUWeight = null;
      OOMPolicy = null;
    };
  };

  # The same agent as `unitsOf` wants it.
  plain = {
    inherit name;
    option = "agents.${name}";
    user = "alice";
    group = "users";
    home = "/home/alice";
    uid = 1000;
    manager = "system";
    address = "127.0.0.1";
    port = core.portOf core.defaultRange name;
    workDir = "/srv/work";
    command = [
      "/bin/daemon"
      "--config"
      "/etc/${name}.toml"
    ];
    path = "/bin";
    credentials = { };
    startAtBoot = false;
    slice = core.defaultSlice name;
    sliceConfig = { };
    programs = {
      kill = "/bin/kill";
      true = "/bin/true";
      systemctl = "/bin/systemctl";
    };
  };
}
