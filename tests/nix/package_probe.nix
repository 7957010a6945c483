# The package, built by nobody: what nixpkgs' functions are given, with a stand-in for the Python package set.
let
  wheels = import ../../nix/wheels.nix;
  names = [
    "anyio"
    "click"
    "cryptography"
    "h11"
    "hatchling"
    "httpcore2"
    "httpx2"
    "hypothesis"
    "idna"
    "jeepney"
    "jinja2"
    "jsonschema"
    "mcp"
    "mcp-types"
    "opentelemetry-api"
    "prometheus-client"
    "pydantic"
    "pytest"
    "pytest-subprocess"
    "pytest-timeout"
    "pytest-xdist"
    "python-multipart"
    "rich"
    "sdnotify"
    "sse-starlette"
    "starlette"
    "systemd-python"
    "tomli-w"
    "truststore"
    "typing-extensions"
    "typing-inspection"
    "uvicorn"
  ];
  ofNixpkgs =
    builtins.listToAttrs (
      map (pname: {
        name = pname;
        value = { inherit pname; };
      }) names
    )
    // {
      pyjwt = {
        pname = "pyjwt";
        optional-dependencies.crypto = [ { pname = "cryptography"; } ];
      };
      buildPythonPackage = given: given;
      buildPythonApplication = given: given;
      fetchPypi = given: given;
    };
  python3.override =
    { packageOverrides, ... }:
    {
      pkgs =
        let
          final = ofNixpkgs // packageOverrides final ofNixpkgs;
        in
        final;
    };
  package = import ../../nix/package.nix {
    inherit python3;
    lib = {
      fileset.toSource = { root, fileset }: map toString fileset;
      fileset.unions = paths: paths;
      licenses.mit = "MIT";
      platforms.linux = [ ];
    };
  };
  inherit (package.passthru.python) pkgs;
  namesOf = map (each: each.pname);
in
{
  inherit (package) version meta src;
  dependencies = namesOf package.dependencies;
  testPackages = namesOf (import ../../nix/test-packages.nix pkgs);
  wheels = builtins.mapAttrs (name: _: {
    inherit (pkgs.${name}) version src pythonRelaxDeps;
    dependencies = namesOf pkgs.${name}.dependencies;
  }) wheels;
}
