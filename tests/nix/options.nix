# Every option of the modules as data for the reference: a list of { name; type; default; example; description; }.
{ library }:
let
  lib = import library;
  evaluated = lib.evalModules {
    modules = [
      (import ./stub_nixos.nix { inherit lib; })
      ../../nixos-module/agent.nix
    ];
  };
  isOurs =
    option:
    lib.any (prefix: lib.hasPrefix prefix option.name) [
      "services.hive-subagent."
      "hyperhive."
    ];
  text =
    value:
    if builtins.isAttrs value && value ? text then value.text else lib.generators.toPretty { } value;
in
map
  (option: {
    inherit (option) name readOnly;
    type = option.type or "";
    description = option.description or null;
    default = if option ? default then text option.default else null;
    example = if option ? example then text option.example else null;
  })
  (
    lib.filter (
      option: isOurs option && option.visible && !option.internal && !lib.hasInfix "_module" option.name
    ) (lib.optionAttrSetToDocList evaluated.options)
  )
