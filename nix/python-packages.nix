# Laid over a Python package set: the daemon's dependencies where nixpkgs' are missing or too old.
#
# Only the daemon's own set gets these, so nothing else on a system is built anew.
final: _:
let
  wheels = import ./wheels.nix;

  fromWheel =
    pname:
    {
      dependencies,
      pythonRelaxDeps ? false,
    }:
    final.buildPythonPackage {
      inherit pname dependencies pythonRelaxDeps;
      inherit (wheels.${pname}) version;
      format = "wheel";
      src = final.fetchPypi {
        pname = builtins.replaceStrings [ "-" ] [ "_" ] pname;
        inherit (wheels.${pname}) version hash;
        format = "wheel";
        dist = "py3";
        python = "py3";
      };
      pythonImportsCheck = [ (builtins.replaceStrings [ "-" ] [ "_" ] pname) ];
    };
in
builtins.mapAttrs fromWheel {
  anyio.dependencies = [
    final.idna
    final.typing-extensions
  ];
  httpcore2.dependencies = [
    final.h11
    final.truststore
  ];
  httpx2 = {
    dependencies = [
      final.anyio
      final.httpcore2
      final.idna
      final.truststore
      final.typing-extensions
    ];
    # It asks for an idna newer than that of nixpkgs, without using anything new of it.
    pythonRelaxDeps = [ "idna" ];
  };
  mcp.dependencies = [
    final.anyio
    final.httpx2
    final.jsonschema
    final.mcp-types
    final.opentelemetry-api
    final.pydantic
    final.pyjwt
    final.python-multipart
    final.sse-starlette
    final.starlette
    final.typing-extensions
    final.typing-inspection
    final.uvicorn
  ]
  ++ final.pyjwt.optional-dependencies.crypto;
  mcp-types.dependencies = [
    final.pydantic
    final.typing-extensions
  ];
  sse-starlette.dependencies = [
    final.anyio
    final.starlette
  ];
  starlette.dependencies = [
    final.anyio
    final.typing-extensions
  ];
  uvicorn.dependencies = [
    final.click
    final.h11
  ];
}
