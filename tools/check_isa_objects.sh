#!/usr/bin/env bash
# The objects of src/kernels/cpu/kernels_<isa>.cc are compiled for an instruction set that the rest of the program must not
# use. A weak symbol in one of them is an inline function that the linker may pick for everybody: it must have none.
#
# usage: tools/check_isa_objects.sh BUILD_DIR
set -euo pipefail

[ $# = 1 ] || {
  echo "usage: tools/check_isa_objects.sh BUILD_DIR" >&2
  exit 2
}
build=$1
weak_symbols() { nm -C "$1" | grep -E '^([0-9a-f]+| +) [WwVvu] ' || true; }

# Positive control: an object with an inline function that is not inlined must be found.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'inline int f() { return 1; } int (*g)() = f;' >"$work/planted.cc"
"${CXX:-c++}" -O2 -c "$work/planted.cc" -o "$work/planted.o"
if [ -z "$(weak_symbols "$work/planted.o")" ]; then
  echo "check_isa_objects: blind: a planted weak symbol was not found" >&2
  exit 1
fi

mapfile -t objects < <(find "$build" -name 'kernels_*.cc.o' -path '*kernels/cpu*' | sort)
if [ ${#objects[@]} = 0 ]; then
  echo "check_isa_objects: no kernels_<isa>.cc.o below $build" >&2
  exit 1
fi
status=0
for object in "${objects[@]}"; do
  found=$(weak_symbols "$object")
  [ -n "$found" ] || continue
  status=1
  printf '%s has symbols that the linker may share:\n%s\n' "$object" "$found" >&2
done
[ $status = 0 ] && echo "check_isa_objects: ${#objects[@]} objects, no weak symbol (and the planted one was found)"
exit $status
