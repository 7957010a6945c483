# Python packages that nixpkgs lacks, or has too old: wheels from the package index, by name.
{
  anyio = {
    version = "4.14.2";
    hash = "sha256-n1Bd2lrJ8Mgwm16L1EWowr9yRvPOlQEh5F6hW8QdFJQ=";
  };
  httpcore2 = {
    version = "2.16.2";
    hash = "sha256-FgUa4qQvd2AHVD8y3pNJoxeyPSy7ThRWtLrA6IuHQZo=";
  };
  httpx2 = {
    version = "2.16.2";
    hash = "sha256-8FwTqt5MRdvxyQYGR6EFjwrK1iOY+tludBJp7bM9RvU=";
  };
  mcp = {
    version = "2.3.0";
    hash = "sha256-3QxEwInRZFPorjGjh3oAVNeiMUyqqB9eBUG5sXNLI3c=";
  };
  mcp-types = {
    version = "2.3.0";
    hash = "sha256-lo79va7fqwatrkDTeKNDlfEJDFkh1L48nN4oOq922R0=";
  };
  sse-starlette = {
    version = "3.7.0";
    hash = "sha256-8dMTbKoS0SkoT8o9Le15vJr5QzILZHJxKVX+pSptPuo=";
  };
  starlette = {
    version = "1.10.0";
    hash = "sha256-R4wKs7TO1ugnGYScEY+kBvAnijSZwaiYzRXNMb3DjOQ=";
  };
  uvicorn = {
    version = "0.54.0";
    hash = "sha256-UFvbDzGHMdRfH3Egcfx4GomB9oR6MckCyfXmUtT2f68=";
  };
}
