# Ports and addresses. Every agent has a port of its own, computed from its name alone, so that adding an agent
# moves nobody else's.
let
  inherit (import ./lib.nix)
    isMatch
    optional
    optionals
    ;
  inherit (import ./addresses.nix)
    isAddress
    isLoopback
    isSame
    isWild
    reachable
    ;

  # The range ends below 32768, where Linux begins to give ports to outgoing connections: no such connection can
  # sit on an agent's port.
  firstEphemeral = 32768;
in
rec {
  defaultRange = {
    base = 20000;
    span = 10000;
  };

  # 60 bits of the hash: as many as a signed 64-bit number can surely hold.
  portOf =
    { base, span }:
    name:
    let
      digits = builtins.substring 0 15 (builtins.hashString "sha256" name);
      number = (builtins.fromTOML "number = 0x${digits}").number;
    in
    base + number - number / span * span;

  rangeFaults =
    option:
    { base, span }:
    optional (base < 1024 || base + span > firstEphemeral) (
      "${option}: the ports ${toString base} to ${toString (base + span - 1)} are not all between 1024 and "
      + "${toString (firstEphemeral - 1)}. Choose base and span so that they are, for instance 20000 and 10000."
    );

  # An address and a port as one text, as systemd and the daemon write it.
  listenAddress =
    address: port:
    if isMatch ".*:.*" address then "[${address}]:${toString port}" else "${address}:${toString port}";

  # Where a caller on this machine finds it.
  url = address: port: "http://${listenAddress (reachable address) port}/mcp";

  listenAddressFaults =
    {
      option,
      address,
      settings,
    }:
    let
      hasToken = settings ? auth && builtins.isAttrs settings.auth && settings.auth ? token_file;
    in
    if !isAddress address then
      [
        ''${option}: ${builtins.toJSON address} is not an IP address. Write one such as "127.0.0.1" or "::1", without a port.''
      ]
    else
      optional (!isLoopback address && !hasToken) (
        "${option}: ${address} can be reached from other machines, and whoever may call can run code as the agent. "
        + ''Use "127.0.0.1" or "::1", or set settings.auth.token_file too.''
      );

  # Given every user of a port as { who, option, address, port, isOurs }: what two of them share, one of them ours.
  portFaults =
    users:
    let
      count = builtins.length users;
      overlap =
        a: b:
        (a.isOurs or true || b.isOurs or true)
        && a.port == b.port
        && (isSame a.address b.address || isWild a.address || isWild b.address);
      pairsWith =
        index:
        let
          one = builtins.elemAt users index;
          later = builtins.genList (offset: builtins.elemAt users (index + 1 + offset)) (count - index - 1);
        in
        map (other: fault one other) (builtins.filter (overlap one) later);
      fault =
        one: other:
        "${other.option}: ${other.who} would listen on port ${toString other.port}, which is also that of ${one.who} (${one.option}). "
        + "Set one of these two options to a port that is free, for instance ${
          toString (free (other.port + 1))
        }.";
      free = port: if builtins.any (user: user.port == port) users then free (port + 1) else port;
    in
    optionals (count > 1) (builtins.concatLists (builtins.genList pairsWith count));
}
