# IP addresses: which texts are one, and which one it is. An IPv6 address can be written in many ways.
let
  inherit (import ./lib.nix)
    isMatch
    lower
    split
    ;

  octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  isV4 = isMatch "${octet}([.]${octet}){3}";

  # The eight groups of an IPv6 address without leading zeros, or null. The forms with an IPv4 address at the end
  # are left out: the daemon takes none in IPv4 clothes.
  groupsOf =
    address:
    let
      halves = split "::" address;
      groups =
        half:
        if half == "" then
          [ ]
        else
          map (group: builtins.head (builtins.match "0*(.*)" (lower group))) (split ":" half);
      isHalf = half: half == "" || isMatch "[0-9a-fA-F]{1,4}(:[0-9a-fA-F]{1,4})*" half;
      known = builtins.concatLists (map groups halves);
      missing = builtins.genList (_: "") (8 - builtins.length known);
      isWhole =
        builtins.all isHalf halves
        && (
          if builtins.length halves == 1 then
            builtins.length known == 8
          else
            builtins.length halves == 2 && builtins.length known <= 7
        );
      expanded =
        if builtins.length halves == 1 then
          known
        else
          groups (builtins.head halves) ++ missing ++ groups (builtins.elemAt halves 1);
    in
    if isWhole then expanded else null;

  zeros = count: builtins.genList (_: "") count;
  startsWith = start: list: builtins.genList (builtins.elemAt list) (builtins.length start) == start;
  isMapped = startsWith (zeros 5 ++ [ "ffff" ]);
in
rec {
  isAddress =
    address:
    let
      groups = groupsOf address;
    in
    isV4 address || (groups != null && !isMapped groups);

  isV6 = address: groupsOf address != null;

  isLoopback =
    address: (isV4 address && isMatch "127[.].*" address) || groupsOf address == zeros 7 ++ [ "1" ];

  # All addresses of the machine.
  isWild = address: address == "0.0.0.0" || groupsOf address == zeros 8;

  isSame = a: b: a == b || (groupsOf a != null && groupsOf a == groupsOf b);

  # The address by which a caller on this machine reaches who listens on it.
  reachable =
    address:
    if !isWild address then
      address
    else if isV4 address then
      "127.0.0.1"
    else
      "::1";
}
