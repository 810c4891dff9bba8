#!/usr/bin/env bash
# Everything that only a GPU can tell: builds the CUDA backend for the GPU of this machine, holds it to the oracle and to
# the CPU bit by bit, runs compute-sanitizer over its kernels and measures. Needs nvcc, CMake and a C++20 compiler, no
# network; libraries that the machine lacks come from a bundle (see --prepare).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$ROOT"

usage() {
  cat <<TEXT
usage: scripts/gpu_check.sh [--bundle DIR] [--out DIR] [MODEL.gguf]
       scripts/gpu_check.sh --prepare DIR [MODEL.gguf]

  MODEL.gguf     an NVFP4 model for the digest of a fixed run; without it, or a model in the bundle, that part is not run
  --bundle DIR   libraries and model that --prepare made
  --out DIR      logs and receipts (default: build/gpu_check/out)
  --prepare DIR  on a Debian machine with the packages of scripts/install_deps.sh: copies headers and libraries to DIR, and
                 the model compressed in pieces of 40 MB (DIR/model.xz.*), each small enough for a machine that is reached
                 by small transfers only. Pieces may arrive one by one; --bundle joins them: cat model.xz.* | xz -d.
TEXT
}

BUNDLE='' OUT=build/gpu_check/out PREPARE='' MODEL=''
while [ $# -gt 0 ]; do
  case $1 in
    --bundle) BUNDLE=$(cd "$2" && pwd) && shift ;;
    --out) OUT=$2 && shift ;;
    --prepare) PREPARE=$2 && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 2 ;;
    *) MODEL=$1 ;;
  esac
  shift
done

PIECE_BYTES=40000000
BUNDLED_PACKAGES=(libfmt-dev libfmt9 libpcre2-dev libpcre2-8-0 libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev
  libssl-dev libssl3)
# Of those packages: headers, CMake's descriptions, and the libraries that nibble links.
BUNDLED_FILES='^/usr/include/|/cmake/|/lib(fmt|pcre2-8|crypto)\.so[.0-9]*$|/lib(gtest|gtest_main|gmock|gmock_main)\.a$'

prepare() {
  mkdir -p "$PREPARE"
  local files
  mapfile -t files < <(dpkg -L "${BUNDLED_PACKAGES[@]}" | grep -E "$BUNDLED_FILES" | sort -u | while read -r f; do [ -d "$f" ] || echo "$f"; done)
  [ "${#files[@]}" -gt 100 ] || die "the packages are not installed" "run scripts/install_deps.sh"
  tar -cJf "$PREPARE/libraries.tar.xz" -C / "${files[@]#/}"
  git rev-parse --short=12 HEAD >"$PREPARE/commit"
  if [ -n "$MODEL" ]; then
    rm -f "$PREPARE"/model.xz.*
    xz -T0 -1 -c "$MODEL" | split -b "$PIECE_BYTES" -d - "$PREPARE/model.xz."
  fi
  ls -l "$PREPARE"
}

# Sets CMAKE_ARGS, and MODEL if the bundle has one.
CMAKE_ARGS=()
unpack_bundle() {
  local place=$PWD/build/gpu_check/bundle
  mkdir -p "$place"
  tar -xJf "$BUNDLE/libraries.tar.xz" -C "$place"
  NIBBLE_COMMIT=$(cat "$BUNDLE/commit")
  export NIBBLE_COMMIT # for receipts, where the sources came without their repository
  CMAKE_ARGS+=("-DCMAKE_PREFIX_PATH=$place/usr" "-DOPENSSL_ROOT_DIR=$place/usr" -DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu
    "-DCMAKE_CXX_FLAGS=-isystem $place/usr/include/x86_64-linux-gnu" "-DCMAKE_BUILD_RPATH=$place/usr/lib/x86_64-linux-gnu" -Wno-dev)
  if [ -z "$MODEL" ] && compgen -G "$BUNDLE/model.xz.*" >/dev/null; then
    MODEL=$place/model.gguf
    [ -s "$MODEL" ] || cat "$BUNDLE"/model.xz.* | xz -d >"$MODEL"
  fi
}

# The target of the first GPU: 9.0 is sm_90a, whose own instructions plain sm_90 has not.
gpu_architecture() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  if [ "$capability" = 90 ]; then echo 90a; else echo "$capability"; fi
}

build() {
  local architecture
  architecture=$(gpu_architecture)
  cmake -S . -B build/gpu_check -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" -DNIBBLE_CUDA=ON \
    "-DNIBBLE_CUDA_ARCHITECTURES=$architecture" "${CMAKE_ARGS[@]}" >"$OUT/configure.txt" 2>&1
  cmake --build build/gpu_check -j "$(jobs_here)" --target nibble nibble_kernels_test prove_equality \
    bench_model cuda_linear_check cuda_linear_bench >"$OUT/build.txt" 2>&1
}

TEST=build/gpu_check/tests/nibble_kernels_test
export NIBBLE_TEST_BACKEND=cuda # all other backends stay out, and tests fail where this one cannot be used

equality_with_the_oracle() {
  "$TEST" --gtest_brief=1 --gtest_filter='-Canary*:SelectIsa*:Registry*:Allocation*:Reference*' | tee "$OUT/tests.txt"
  grep -q '^\[  PASSED  \] [1-9]' "$OUT/tests.txt"
  if grep -q SKIPPED "$OUT/tests.txt"; then return 1; fi
}

# The tools slow kernels down a hundred times: one test a kind of kernel.
SANITIZED='SeamCanary*:Fused.*:LinearQ8*:Embed*'
sanitizer() {
  local tool n=0 but=()
  for tool in memcheck racecheck synccheck initcheck; do
    # Warps of this kernel hand over through mbarriers, between which racecheck sees no order.
    if [ "$tool" = racecheck ]; then but=(--kernel-name-exclude kernel_substring=gemv_kernel); else but=(); fi
    timeout 240 compute-sanitizer --tool "$tool" "${but[@]}" --error-exitcode 9 "$TEST" --gtest_brief=1 --gtest_filter="$SANITIZED" \
      >"$OUT/sanitizer-$tool.txt" 2>&1 || { tail -n 30 "$OUT/sanitizer-$tool.txt" && return 1; }
    n=$((n + 1))
  done
  echo "$n tools, no report"
}

equality_with_the_cpu() {
  build/gpu_check/tools/prove_equality "$MODEL" -f bench/texts/prose.txt --backend cpu,cuda --threads "$(nproc)" \
    --chunk 1,7,256,0 -o "$OUT/equality.json" | tee "$OUT/equality.txt"
}

# Layers by themselves beside the read bandwidth, then a whole model of the shape of Llama 3 8B against the same limit.
benchmark() {
  local tools=build/gpu_check/tools limit
  "$tools/cuda_linear_bench" "$OUT/bench_linear.json" | tee "$OUT/bench_linear.txt"
  limit=$(sed -n 's/.*: read \([0-9]*\) GB.*/\1/p' "$OUT/bench_linear.txt" | head -n 1)
  "$tools/bench_model" --backend cuda --limit "$limit" -o "$OUT/bench_model.json" | tee "$OUT/bench_model.txt"
}

linear_routes() { build/gpu_check/tools/cuda_linear_check 1 | tee "$OUT/linear_check.txt"; }

FAILED=()
check() { # check WORDS COMMAND...
  local words=$1 started=$EPOCHREALTIME
  shift
  step "$words"
  local status=0
  set +e
  (set -e; "$@")
  status=$?
  set -e
  if [ $status = 0 ]; then
    say "${GREEN}passed${PLAIN} ($(seconds_since "$started") s)"
  else
    FAILED+=("$words")
    say "${RED}FAILED${PLAIN}"
  fi
}

if [ -n "$PREPARE" ]; then
  prepare
  exit
fi
PATH=$PATH:/usr/local/cuda/bin
have nvcc || die "there is no nvcc" "install the CUDA toolkit, 12.8 or newer"
have nvidia-smi || die "there is no nvidia-smi" "this script wants a machine with an NVIDIA GPU and its driver"
mkdir -p "$OUT"
[ -z "$BUNDLE" ] || unpack_bundle
step "build for sm_$(gpu_architecture)"
build || { tail -n 40 "$OUT/configure.txt" "$OUT/build.txt" && exit 1; }
check "start-up canary" bash -c "build/gpu_check/apps/nibble doctor | tee '$OUT/doctor.txt' | grep -q 'cuda .*canary: passed'"
check "every op equals the oracle" equality_with_the_oracle
check "every route of the NVFP4 layers equals the oracle" linear_routes
if [ -n "$MODEL" ]; then
  check "one digest on this machine's CPU and GPU" equality_with_the_cpu
else
  warn "no model given: the digest of a whole run was not compared"
fi
if have compute-sanitizer; then
  check "compute-sanitizer" sanitizer
else
  warn "there is no compute-sanitizer: not run"
fi
check "benchmark" benchmark
[ ${#FAILED[@]} = 0 ] || die "failed: ${FAILED[*]}" "logs are in $OUT"
say "all passed; logs and receipts are in $OUT"
