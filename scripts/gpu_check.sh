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
usage: scripts/gpu_check.sh [--bundle DIR] [--out DIR] [--without PART]... [MODEL.gguf...]
       scripts/gpu_check.sh --prepare DIR [MODEL.gguf...]

  MODEL.gguf      NVFP4 models for the digest of a fixed run, besides two layers of the shape of Llama 3 8B with random
                  weights, which are made here
  --bundle DIR    libraries and models that --prepare made
  --out DIR       logs and receipts (default: build/gpu_check/out)
  --without PART  leaves out build (programs are there already), canary, tests, equality, sanitizer or benchmark
  --prepare DIR   on a Debian machine with the packages of scripts/install_deps.sh: copies headers and libraries to DIR, and
                  the models compressed in pieces of 50 MB (DIR/NAME.gguf.xz.00, .01, ...), each small enough for a machine
                  that is reached by small transfers only. Pieces may arrive one by one; --bundle joins them:
                  cat NAME.gguf.xz.* | xz -d. tools/cut_model makes a large model small.
TEXT
}

BUNDLE='' OUT=build/gpu_check/out PREPARE='' MODELS=() WITHOUT=' '
while [ $# -gt 0 ]; do
  case $1 in
    --bundle | --out | --prepare | --without)
      case ${2:-} in '' | -*) wrong_usage "$1 needs a value" ;; esac
      ;;&
    --bundle)
      [ -r "$2/libraries.tar.xz" ] || wrong_usage "$2 is not a bundle" "--prepare makes one, with a libraries.tar.xz in it"
      BUNDLE=$(cd "$2" && pwd)
      shift
      ;;
    --out) OUT=$2 && shift ;;
    --prepare) PREPARE=$2 && shift ;;
    --without)
      case $2 in
        build | canary | tests | equality | sanitizer | benchmark) WITHOUT+="$2 " ;;
        *) wrong_usage "there is no part '$2'" "parts: build, canary, tests, equality, sanitizer, benchmark" ;;
      esac
      shift
      ;;
    -h | --help) usage && exit 0 ;;
    -*) wrong_usage "there is no flag $1" ;;
    *)
      [ -r "$1" ] || wrong_usage "there is no model '$1'"
      MODELS+=("$1")
      ;;
  esac
  shift
done

PIECE_BYTES=50000000
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
  local model
  for model in "${MODELS[@]}"; do
    rm -f "$PREPARE/${model##*/}".xz.*
    xz -T0 -1 -c "$model" | split -b "$PIECE_BYTES" -d - "$PREPARE/${model##*/}.xz."
  done
  ls -l "$PREPARE"
}

# Sets CMAKE_ARGS, and MODELS if the bundle has some.
CMAKE_ARGS=()
unpack_bundle() {
  local place=$PWD/build/gpu_check/bundle
  mkdir -p "$place"
  tar -xJf "$BUNDLE/libraries.tar.xz" -C "$place"
  NIBBLE_COMMIT=$(cat "$BUNDLE/commit")
  export NIBBLE_COMMIT # for receipts, where the sources came without their repository
  CMAKE_ARGS+=("-DCMAKE_PREFIX_PATH=$place/usr" "-DOPENSSL_ROOT_DIR=$place/usr" -DCMAKE_LIBRARY_ARCHITECTURE=x86_64-linux-gnu
    "-DCMAKE_CXX_FLAGS=-isystem $place/usr/include/x86_64-linux-gnu" "-DCMAKE_BUILD_RPATH=$place/usr/lib/x86_64-linux-gnu" -Wno-dev)
  local first
  for first in "$BUNDLE"/*.gguf.xz.00; do
    [ -e "$first" ] || continue
    MODELS+=("$place/$(basename "${first%.xz.00}")")
    [ -s "${MODELS[-1]}" ] || cat "${first%00}"* | xz -d >"${MODELS[-1]}"
  done
}

# The target of the first GPU: 9.0 is sm_90a and 12.0 is sm_120a, whose own instructions the plain targets have not.
gpu_architecture() {
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  case $capability in
    90 | 120) echo "${capability}a" ;;
    *) echo "$capability" ;;
  esac
}

build() {
  local architecture
  architecture=$(gpu_architecture)
  cmake -S . -B build/gpu_check -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" -DNIBBLE_CUDA=ON \
    "-DNIBBLE_CUDA_ARCHITECTURES=$architecture" "${CMAKE_ARGS[@]}" >"$OUT/configure.txt" 2>&1
  cmake --build build/gpu_check -j "$(jobs_here)" --target nibble nibble_kernels_test prove_equality \
    write_tiny_model bench_model bench_attention cuda_linear_check cuda_linear_bench >"$OUT/build.txt" 2>&1
}

TEST=build/gpu_check/tests/nibble_kernels_test
export NIBBLE_TEST_BACKEND=cuda # all other backends stay out, and tests fail where this one cannot be used

equality_with_the_oracle() {
  local but='Canary*:SelectIsa*:Registry*:Allocation*:Reference*'
  [ "$(gpu_architecture)" = 120a ] || but+=':NativeFp4.*' # of FP4 tensor cores, which no other has
  "$TEST" --gtest_brief=1 --gtest_filter="-$but" | tee "$OUT/tests.txt"
  grep -q '^\[  PASSED  \] [1-9]' "$OUT/tests.txt"
  if grep -q SKIPPED "$OUT/tests.txt"; then return 1; fi
}

# The tools slow kernels down a hundred times: one test a kind of kernel, and all tools at once.
SANITIZED='SeamCanary*:Fused.*:LinearQ8*:Embed*'
sanitizer() {
  local tool but=() jobs=() failed=0
  for tool in memcheck racecheck synccheck initcheck; do
    # Warps of the gemv, of the gemm and of Hopper's attention of a prompt hand over through mbarriers, between which
    # racecheck sees no order.
    but=()
    [ "$tool" != racecheck ] || but=(--kernel-name-exclude kernel_substring=gem --kernel-name-exclude kernel_substring=prompt_sm90)
    [ "$tool" != synccheck ] || but=(--num-cuda-barriers 65536) # of all thread blocks that run at once
    timeout 400 compute-sanitizer --tool "$tool" "${but[@]}" --error-exitcode 9 "$TEST" --gtest_brief=1 --gtest_filter="$SANITIZED" \
      >"$OUT/sanitizer-$tool.txt" 2>&1 &
    jobs+=("$tool $!")
  done
  local job
  for job in "${jobs[@]}"; do
    wait "${job#* }" || { failed=1 && tail -n 12 "$OUT/sanitizer-${job% *}.txt"; }
  done
  [ $failed = 0 ] && echo "${#jobs[@]} tools, no report"
}

# prove NAME MODEL ARGUMENTS...: alone and among other sequences, in every chunk, with and without graphs, on every route.
prove() {
  local name=$1 model=$2
  shift 2
  local status=0
  build/gpu_check/tools/prove_equality "$model" -f bench/texts/prose.txt --backend cpu,cuda --isa auto --threads "$(nproc)" \
    --chunk 1,7,256,0 --batch 1,2,17 "$@" -o "$OUT/equality_$name.json" >"$OUT/equality_$name.txt" || status=$?
  grep DIFFER "$OUT/equality_$name.txt" || true
  echo "$(grep -c ' batch ' "$OUT/equality_$name.txt") runs: $(tail -n 1 "$OUT/equality_$name.txt")"
  return $status
}
equality_with_the_cpu() { prove "$(basename "$1" .gguf)" "$1" --route auto,gemv,gemm,gemm-mma,integers; }
equality_of_the_8b_shape() {
  local model=build/gpu_check/llama-8b.gguf # 250 MB of seeded random weights
  build/gpu_check/tools/write_tiny_model llama-8b $model
  prove llama_8b_2_layers $model --cpu-chunk 7,0 --prompt-tokens 150 -n 16 --route auto,gemv,gemm,gemm-mma
}

# Layers by themselves beside the read bandwidth and cuBLAS, attention beside it and FlashAttention, then a whole model of
# the shape of Llama 3 8B against the same limit, with a head of either kind. Peers run where PyTorch is.
benchmark() {
  local tools=build/gpu_check/tools limit cublas=() flash=()
  if python3 -c 'import torch' 2>/dev/null; then
    python3 tools/cublas_bf16.py "$OUT/cublas_bf16.json" && cublas=(--peer "$OUT/cublas_bf16.json")
    python3 tools/flash_attention.py "$OUT/flash_attention.json" && flash=(--peer "$OUT/flash_attention.json")
  fi
  "$tools/cuda_linear_bench" "${cublas[@]}" -o "$OUT/bench_linear.json" | tee "$OUT/bench_linear.txt"
  limit=$(sed -n 's/.*: read \([0-9]*\) GB.*/\1/p' "$OUT/bench_linear.txt" | head -n 1)
  "$tools/bench_attention" --backend cuda --limit "$limit" "${flash[@]}" -o "$OUT/bench_attention.json" | tee "$OUT/bench_attention.txt"
  "$tools/bench_model" --backend cuda --contract nc1,native --limit "$limit" -o "$OUT/bench_model.json" | tee "$OUT/bench_model.txt"
  "$tools/bench_model" --backend cuda --wide-head --batch 8 --prompt 512 --limit "$limit" -o "$OUT/bench_model_f16_head.json" |
    tee "$OUT/bench_model_f16_head.txt"
}

linear_routes() { build/gpu_check/tools/cuda_linear_check 1 | tee "$OUT/linear_check.txt"; }

FAILED=()
check() { # check PART WORDS COMMAND...
  local part=$1 words=$2 started=$EPOCHREALTIME
  shift 2
  if [[ $WITHOUT == *" $part "* ]]; then
    warn "left out: $words"
    return
  fi
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
[[ $WITHOUT == *" build "* ]] || build || { tail -n 40 "$OUT/configure.txt" "$OUT/build.txt" && exit 1; }
check canary "start-up canary" bash -c "build/gpu_check/apps/nibble doctor | tee '$OUT/doctor.txt' | grep -q 'cuda .*canary: passed'"
check tests "every op equals the oracle" equality_with_the_oracle
check tests "every route of the NVFP4 layers equals the oracle" linear_routes
check equality "one digest of the 8B shape on this machine's CPU and GPU" equality_of_the_8b_shape
for model in "${MODELS[@]}"; do
  check equality "one digest of ${model##*/} on this machine's CPU and GPU" equality_with_the_cpu "$model"
done
[ ${#MODELS[@]} != 0 ] || warn "no model given: only random weights were compared"
check benchmark "benchmark" benchmark
if have compute-sanitizer; then
  check sanitizer "compute-sanitizer" sanitizer
else
  warn "there is no compute-sanitizer: not run"
fi
[ ${#FAILED[@]} = 0 ] || die "failed: ${FAILED[*]}" "logs are in $OUT"
say "all passed; logs and receipts are in $OUT"
