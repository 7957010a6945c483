# Which known word a misspelt one was probably meant to be.
let
  inherit (import ./lib.nix) characters concat lower;

  squeezed = word: builtins.replaceStrings [ "_" "-" ] [ "" "" ] (lower word);

  length = builtins.length;
  tail = list: builtins.genList (index: builtins.elemAt list (index + 1)) (length list - 1);
  reversed =
    list: builtins.genList (index: builtins.elemAt list (length list - 1 - index)) (length list);

  # What is left of two lists after the part at their beginnings that they share.
  withoutShared =
    a: b:
    if a != [ ] && b != [ ] && builtins.head a == builtins.head b then
      withoutShared (tail a) (tail b)
    else
      { inherit a b; };

  # One character more, less or another, or two that have changed places.
  isNear =
    one: other:
    let
      ends = withoutShared (characters one) (characters other);
      middles = withoutShared (reversed ends.a) (reversed ends.b);
    in
    (length middles.a <= 1 && length middles.b <= 1)
    || (
      length middles.a == 2 && length middles.b == 2 && concat middles.a == concat (reversed middles.b)
    );
in
rec {
  # The known word, or null; a word that is known is meant as it stands.
  meant =
    known: word:
    let
      same = builtins.filter (each: squeezed each == squeezed word) known;
      near = builtins.filter (
        each: builtins.stringLength word <= 40 && isNear (squeezed each) (squeezed word)
      ) known;
      found = same ++ near;
    in
    if builtins.elem word known || found == [ ] then null else builtins.head found;

  # " Did you mean …?", or nothing.
  hint =
    known: word:
    let
      each = meant known word;
    in
    if each == null then "" else " Did you mean ${each}?";
}
