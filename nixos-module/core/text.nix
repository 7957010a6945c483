# Units as unit files, the way NixOS writes them: for tests on a systemd without NixOS.
let
  inherit (import ./lib.nix)
    concat
    mapToList
    optionalAttrs
    ;

  asText =
    value: if builtins.isBool value then (if value then "true" else "false") else toString value;

  # A list is a key that stands several times.
  lines =
    settings:
    concat (
      mapToList (
        key: value:
        concat (map (each: "${key}=${asText each}\n") (if builtins.isList value then value else [ value ]))
      ) settings
    );

  joined =
    key: unit:
    optionalAttrs ((unit.${key} or [ ]) != [ ]) {
      ${heads.${key}} = builtins.concatStringsSep " " unit.${key};
    };
  heads = {
    requires = "Requires";
    wants = "Wants";
    after = "After";
  };

  head =
    unit:
    "[Unit]\n"
    + lines (
      {
        Description = unit.description;
      }
      // joined "requires" unit
      // joined "wants" unit
      // joined "after" unit
      // optionalAttrs (unit ? startLimitIntervalSec) {
        StartLimitIntervalSec = unit.startLimitIntervalSec;
      }
      // unit.unitConfig or { }
    );

  install =
    unit:
    if (unit.wantedBy or [ ]) == [ ] then
      ""
    else
      "\n[Install]\nWantedBy=${builtins.concatStringsSep " " unit.wantedBy}\n";

  environment =
    set: concat (mapToList (name: value: "Environment=${builtins.toJSON "${name}=${value}"}\n") set);

  sections = {
    service = unit: "\n[Service]\n" + environment (unit.environment or { }) + lines unit.serviceConfig;
    socket =
      unit: "\n[Socket]\n" + lines unit.socketConfig + lines { ListenStream = unit.listenStreams; };
    slice = unit: "\n[Slice]\n" + lines unit.sliceConfig;
  };

  file = kind: name: unit: {
    name = "${name}.${kind}";
    value = head unit + sections.${kind} unit + install unit;
  };
in
{
  # The files of { services, sockets, slices }, by their names.
  unitFiles =
    {
      services,
      sockets,
      slices,
    }:
    builtins.listToAttrs (
      mapToList (file "service") services
      ++ mapToList (file "socket") sockets
      ++ mapToList (file "slice") slices
    );
}
