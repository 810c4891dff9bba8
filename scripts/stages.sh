# The stages of scripts/test.sh: each a function stage_NAME that runs in the root of the tree under set -e.
# It returns 0 (passed), 77 after a line 'NOT RUN: why' (not run), anything else (failed); a line 'COUNT: what' goes into
# the summary. A stage must be able to fail: what it measures is never piped into something that forgives.
# shellcheck shell=bash
# shellcheck disable=SC2034  # tables read by test.sh

declare -A STAGE_ABOUT=(
  [deps]="what building and testing needs"
  [layers]="who includes whom, and the habits that a machine can see"
  [style]="clang-format and shellcheck"
  [claims]="what the README says with a figure is what its receipt says"
  [portable]="src/format under every compiler of this machine"
  [dev]="optimized build, all unit tests"
  [isa_objects]="no object of an instruction set lends code to the rest of the program"
  [perturbed]="positive control: one rounding changed, the equality tests must fail"
  [scripts]="the scripts' own tests"
  [models]="the real models, fetched and verified"
  [references]="comparison with Python's reference implementations"
  [browser]="the page of 'nibble report' in Chromium, on a screen and a phone"
  [scalar]="build without vector instructions, all unit tests"
  [asan]="AddressSanitizer and UBSan: all unit tests and fuzzing"
  [demo]="scripts/demo.sh, as a newcomer runs it"
  [equality]="one digest of all logits on the real models, over instruction sets, threads, chunks and cache states"
  [tsan]="ThreadSanitizer: the tests that use threads"
  [aarch64]="Arm cross build, unit tests under qemu"
  [cuda]="the CUDA backend for sm_80 and sm_90a, its kernels for sm_86, 89, 100 and 120a, and what of it needs no GPU"
  [cuda_emulated]="the CUDA kernels on an emulated GPU of two architectures: bits, barriers, bounds"
  [tidy]="clang-tidy over all sources"
)
STAGES=(deps layers style claims portable dev isa_objects scripts models references browser scalar perturbed cuda cuda_emulated demo equality tsan
  aarch64 asan tidy)
QUICK_STAGES=(deps layers style claims portable dev isa_objects scripts models references)

FUZZ_SECONDS=${FUZZ_SECONDS:-20} # a target

not_run() {
  echo "NOT RUN: $*"
  return 77
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  cmake --preset "$preset"
  if [ $# = 0 ]; then
    cmake --build --preset "$preset" -j "$JOBS"
  else
    cmake --build --preset "$preset" -j "$JOBS" --target "$@"
  fi
}

# unit_tests PRESET [ctest arguments]: no test at all is a failure, too.
unit_tests() {
  local preset=$1
  shift
  ctest --test-dir "build/$preset" -j "$JOBS" --no-tests=error --output-on-failure --output-junit "$LOGS/$preset.xml" "$@"
  local total
  total=$(grep -c '<testcase ' "$LOGS/$preset.xml")
  if grep -q 'status="notrun"' "$LOGS/$preset.xml"; then
    echo "skipped inside ctest:" && grep -B1 -A4 'status="notrun"' "$LOGS/$preset.xml"
  fi
  echo "COUNT: $total tests"
}

# models_here: fetches the models that the tests use and sets MODELS to their paths; not run without a network.
MODEL_NAMES=(smollm2-135m-instruct qwen2.5-coder-0.5b-instruct)
models_here() {
  local name path status
  MODELS=()
  for name in "${MODEL_NAMES[@]}"; do
    status=0
    path=$(bash scripts/fetch_model.sh "$name") || status=$?
    [ $status != 3 ] || not_run "$name could not be downloaded"
    [ $status = 0 ] || return $status
    MODELS+=("$path")
  done
}

sources() { git ls-files 'src/**' 'apps/**' 'include/**' 'tests/**' 'tools/**' 'fuzz/**' 'bench/**' | grep -E '\.(h|cc|inl|cu|cuh)$'; }

stage_deps() { bash scripts/install_deps.sh test; }

stage_layers() { python3 tools/check_layers.py; }

stage_style() {
  local files
  mapfile -t files < <(sources)
  clang-format-14 --dry-run -Werror "${files[@]}"
  shellcheck -x scripts/*.sh tools/*.sh bench/*.sh .ci/run
  echo "COUNT: ${#files[@]} sources"
}

stage_claims() {
  python3 tools/check_claims | tee "$LOGS/claims.txt"
  echo "COUNT: $(sed -n 's/^check_claims: //p' "$LOGS/claims.txt")"
}

stage_portable() {
  bash tools/check_portable.sh | tee "$LOGS/portable.txt"
  echo "COUNT: $(grep -c '^ok' "$LOGS/portable.txt") compilers$(sed -n 's/^not run */; not run: /p' "$LOGS/portable.txt" | paste -sd '')"
}

stage_dev() {
  build dev
  unit_tests dev
}

stage_scripts() {
  local test n=0
  for test in tests/scripts/*_test.py; do
    python3 "$test"
    n=$((n + 1))
  done
  echo "COUNT: $n test programs"
}

stage_isa_objects() {
  build dev
  bash tools/check_isa_objects.sh build/dev
}

# The preset `perturbed` adds one rounding in one kernel of one instruction set. Tests that still pass are blind.
stage_perturbed() {
  grep -qw avx2 /proc/cpuinfo || not_run "the changed rounding is in the AVX2 kernels, which this machine cannot run"
  build perturbed nibble_kernels_test nibble_engine_test
  local test filter n
  for test in 'kernels:*Linear*' 'engine:*Equality*'; do
    filter=${test#*:} test=nibble_${test%%:*}_test
    if "build/perturbed/tests/$test" --gtest_brief=1 --gtest_filter="$filter" >"$LOGS/perturbed-$test.txt"; then
      echo "$test $filter did not notice the changed rounding" && return 1
    fi
    n=$(grep -c '^\[  FAILED  \].*ms)' "$LOGS/perturbed-$test.txt")
    [ "$n" -gt 0 ] || { cat "$LOGS/perturbed-$test.txt" && return 1; }  # it crashed: that is no proof
    echo "$test $filter: $n tests noticed it"
  done
  echo "COUNT: noticed by $(cat "$LOGS"/perturbed-*.txt | grep -c '^\[  FAILED  \].*ms)') tests"
}

stage_models() {
  models_here
  printf '%s\n' "${MODELS[@]}"
  echo "COUNT: ${#MODELS[@]} models"
}

# Each tests/*/*_reference.py takes the build folder, a *_models_reference.py the models after it; 77: not run.
stage_references() {
  local script status n=0 missing=0 arguments
  build dev
  for script in tests/*/*_reference.py; do
    arguments=(build/dev)
    if [[ $script == *_models_reference.py ]]; then
      models_here
      arguments+=("${MODELS[@]}")
    fi
    echo "--- $script"
    status=0
    "$VENV/bin/python" "$script" "${arguments[@]}" || status=$?
    case $status in
      0) n=$((n + 1)) ;;
      77) missing=$((missing + 1)) && echo "NOT RUN: $script (its Python reference is not installed)" ;;
      *) return "$status" ;;
    esac
  done
  echo "COUNT: $n comparisons"
  [ $missing = 0 ] || return 77
}

stage_browser() {
  build dev nibble
  models_here
  local work=build/models
  mkdir -p $work
  build/dev/apps/nibble quantize "${MODELS[0]}" -o "$work/report.gguf"
  build/dev/apps/nibble report "$work/report.gguf" --source "${MODELS[0]}" --quality bench/receipts/quality_smollm2_135m_mse.json \
    --speed bench/receipts/speed_op_zen5_blocks.json -o "$work/report.html"
  python3 tests/measure/report_browser_test.py "$work/report.html" | tee "$LOGS/browser.txt"
  echo "COUNT: $(sed 's/^[^:]*: //' "$LOGS/browser.txt")"
}

stage_demo() {
  models_here
  bash scripts/demo.sh 2>&1 | tee "$LOGS/demo.txt"
  grep -q '^identical: ' "$LOGS/demo.txt"
  echo "COUNT: $(grep -c '^identical: ' "$LOGS/demo.txt") replays identical; mean KL $(awk '/^prose/ { print $5 }' "$LOGS/demo.txt") nats"
}

# prove MODEL ARGUMENT...: quantizes a model of the cache and demands one digest of it.
prove() {
  local source=$1 name quantized
  shift
  name=$(basename "$source" .gguf)
  quantized=build/models/$name.NVFP4.gguf
  mkdir -p build/models
  build/release/apps/nibble quantize "$source" -o "$quantized"
  build/release/tools/prove_equality "$quantized" -f bench/texts/prose.txt -o "$LOGS/equality-$name.json" "$@"
}

# A prompt of more than 128 tokens crosses a split of the attention. The k-quant lane runs a source as it is.
stage_equality() {
  models_here
  build release nibble prove_equality
  prove "${MODELS[0]}" --prompt-tokens 150 -n 16
  prove "${MODELS[1]}" --prompt-tokens 140 -n 8 --threads 1,3 --chunk 7,0
  build/release/tools/prove_equality "${MODELS[0]}" -f bench/texts/prose.txt -o "$LOGS/equality-kquant.json" \
    --prompt-tokens 40 -n 6 --threads 1,3 --chunk 7,0
  echo "COUNT: $(cat "$LOGS"/equality-*.json | grep -c '"isa"') runs, two models in NVFP4 and one in its k-quants, one digest each"
}

stage_scalar() {
  build scalar
  unit_tests scalar
}

stage_asan() {
  local target name n=0
  build asan
  unit_tests asan
  for target in build/asan/fuzz/*_fuzz; do
    [ -x "$target" ] || continue
    name=$(basename "$target" _fuzz)
    mkdir -p "build/fuzz/$name"
    local corpora=("build/fuzz/$name")
    [ ! -d "fuzz/corpus/$name" ] || corpora+=("fuzz/corpus/$name")
    "$target" -max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix="$LOGS/" "${corpora[@]}"
    n=$((n + 1))
  done
  echo "COUNT: $(grep -c '<testcase ' "$LOGS/asan.xml") tests, $n fuzz targets of $FUZZ_SECONDS s"
}

TSAN_LAYERS=(base kernels engine)
stage_tsan() {
  local layer targets=()
  for layer in "${TSAN_LAYERS[@]}"; do
    [ -z "$(git ls-files "tests/$layer/*.cc")" ] || targets+=("nibble_${layer}_test")
  done
  build tsan "${targets[@]}" nibble write_tiny_model
  # Of the models that every instruction set runs, one: what threads do is the same in all, and its ops are the kernels' tests.
  local test
  for test in "${targets[@]}"; do "build/tsan/tests/$test" --gtest_brief=1 --gtest_filter='*-*EveryIsaThreadCount*'; done
  build/tsan/tests/nibble_engine_test --gtest_brief=1 --gtest_filter='*EveryIsaThreadCount*/0'
  build/tsan/tools/write_tiny_model llama "$LOGS/soak.gguf"
  build/tsan/apps/nibble bench soak "$LOGS/soak.gguf" --minutes 0.4 --max-growth 4096 # memory is the sanitizer's here
  echo "COUNT: ${targets[*]}; a soak of half a minute"
}

stage_aarch64() {
  NIBBLE_AARCH64_SYSROOT=$(bash scripts/aarch64_sysroot.sh) || not_run "the Arm libraries could not be fetched"
  export NIBBLE_AARCH64_SYSROOT
  build aarch64
  # Half of the families with every instruction set, one of each lane and contract: the others differ in the model alone.
  # That of Ctrl-C waits for a process called nibble, which an emulated one is not.
  unit_tests aarch64 -E 'EveryIsaThreadCount.*/([127-9]|10)$|ControlCEndsMeasurementsAtOnce'
  same_as_here
}

# A short run of the real model: those of Arm under the emulator and the instruction sets of this machine, one digest.
same_as_here() {
  local run=(-f bench/texts/prose.txt --prompt-tokens 12 -n 3 --threads 2 --chunk 5)
  local model=build/models/SmolLM2-135M-Instruct.Q4_1.NVFP4.gguf
  models_here
  build release nibble prove_equality
  mkdir -p build/models
  build/release/apps/nibble quantize "${MODELS[0]}" -o "$model"
  build/release/tools/prove_equality "$model" "${run[@]}" -o "$LOGS/short-here.json"
  qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/tools/prove_equality "$model" --isa neon,neondot,neoni8mm "${run[@]}" -o "$LOGS/short-arm.json"
  diff <(grep '^ "logits_digest"' "$LOGS/short-here.json") <(grep '^ "logits_digest"' "$LOGS/short-arm.json")
  grep -q '^ "logits_digest": "[0-9a-f]\{64\}"' "$LOGS/short-arm.json"
}

# CI has no GPU: scripts/gpu_check.sh runs the kernels where there is one, the stage after this one on an emulation.
stage_cuda() {
  PATH=$PATH:/usr/local/cuda/bin
  command -v nvcc >/dev/null || not_run "there is no nvcc on PATH or in /usr/local/cuda/bin"
  cmake --preset cuda -DNIBBLE_CUDA_ARCHITECTURES="80;90a"
  cmake --build --preset cuda -j "$JOBS" --target nibble_kernels_test
  build/cuda/tests/nibble_kernels_test --gtest_brief=1 --gtest_filter='Registry*:Cuda*' | tee "$LOGS/cuda.txt"
  grep -q 'PASSED' "$LOGS/cuda.txt"
  # The other architectures of a binary, in a hurry (-Ofc): that nothing lacks there, not what is best.
  local arch other=()
  for arch in 86 89 100 120a; do other+=(-gencode "arch=compute_$arch,code=sm_$arch"); done
  find src/kernels/cuda -name '*.cu' -printf '%f\n' | xargs -P "$JOBS" -I {} nvcc -Ofc=max -DNDEBUG -std=c++20 -Isrc --fmad=false \
    --expt-relaxed-constexpr -Werror=all-warnings "${other[@]}" -c -o build/cuda/other_{}.o src/kernels/cuda/{}
  echo "COUNT: $(find src/kernels/cuda -name '*.cu' | wc -l) kernel files for sm_80 and sm_90a, in a hurry for 86, 89, 100 and 120a; no kernel was run"
}

# docs/cuda.md says what this proves and what not. The GPUs differ in what chooses kernels: compute capability and number
# of multiprocessors. What is slow to emulate and the same on both runs on one: attention over many splits on the first,
# weights and models of other contracts than nc1 on the second.
EMULATED_GPUS=(80x4 90x3)
EMULATED_TESTS='CudaEmulation*:Graphs/CudaEmulation*:SeamCanary*:Attention*:Elementwise*:Rope*:Embed*:Fused*:LinearNvfp4*:LinearRows*:LinearQ8*:LinearInput*:LinearFp8*:Native.*:NativeRefusal*'
EMULATED_NOT='Fused.RopeAttentionInputOfLongSequences*' # for a GPU's speed
EMULATED_FORMATS='Formats/*:LinearFormat*:Types/LinearQuant*'
EMULATED_FAMILIES=(llama gemma3 qwen3)
EMULATED_CONTRACTS=(nc1-f16 w4a4 kquant)
emulated_gpu() {
  local gpu=$1 log=$LOGS/cuda_emulated-$1 tests=$EMULATED_TESTS but=$EMULATED_NOT families=("${EMULATED_FAMILIES[@]}")
  if [ "$gpu" != "${EMULATED_GPUS[0]}" ]; then
    tests+=":$EMULATED_FORMATS"
    but+=":Attention.SlidingWindowsOfManyRows:CudaEmulationLoad.*"
    families+=("${EMULATED_CONTRACTS[@]}")
  fi
  export NIBBLE_EMULATED_GPU=$gpu
  NIBBLE_TEST_BACKEND=cuda build/cuda_emulated/tests/nibble_kernels_test --gtest_brief=1 --gtest_filter="$tests-$but" >"$log.txt" 2>&1 ||
    { cat "$log.txt" && return 1; }
  if grep SKIPPED "$log.txt"; then return 1; fi
  local family routes chunks
  for family in "${families[@]}"; do
    routes=auto chunks=7,0
    [ "$family" != "${EMULATED_FAMILIES[0]}" ] || routes+=,gemv,gemm
    [[ " ${EMULATED_CONTRACTS[*]} " != *" $family "* ]] || chunks=7
    build/cuda_emulated/tools/prove_equality "$LOGS/emulated_$family.gguf" --backend cpu,cuda --route "$routes" \
      -f bench/texts/prose.txt --prompt-tokens 24 -n 3 --threads 1 --chunk "$chunks" --batch 2 -o "$log-$family.json" || return 1
  done
}
# The only contract that wants a GPU of 12.x: its kernels, a whole model, and what is counted and refused while loading.
emulated_fp4() {
  export NIBBLE_EMULATED_GPU=120x4
  NIBBLE_TEST_BACKEND=cuda build/cuda_emulated/tests/nibble_kernels_test --gtest_brief=1 \
    --gtest_filter='NativeFp4*:CudaEmulationLoad.NativeFp4*:CudaEmulationLoad.Admit*' >"$LOGS/cuda_emulated-fp4.txt" 2>&1 ||
    { cat "$LOGS/cuda_emulated-fp4.txt" && return 1; }
  if grep SKIPPED "$LOGS/cuda_emulated-fp4.txt"; then return 1; fi
}
stage_cuda_emulated() {
  build cuda_emulated nibble_kernels_test prove_equality write_tiny_model
  local gpu family pid pids=() families=("${EMULATED_FAMILIES[@]}" "${EMULATED_CONTRACTS[@]}")
  for family in "${families[@]}"; do
    build/cuda_emulated/tools/write_tiny_model "$family" "$LOGS/emulated_$family.gguf"
  done
  for gpu in "${EMULATED_GPUS[@]}"; do
    emulated_gpu "$gpu" &
    pids+=($!)
  done
  emulated_fp4 &
  pids+=($!)
  for pid in "${pids[@]}"; do wait "$pid"; done
  local passed runs
  passed=$(cat "$LOGS"/cuda_emulated-*.txt | sed -n 's/^\[  PASSED  \] \([0-9]*\) tests\.$/\1/p' | paste -sd +)
  runs=$(cat "$LOGS"/cuda_emulated-*.json | grep -c '"backend": "cuda"')
  [ "$((passed))" -gt 0 ] && [ "$runs" -gt 0 ]
  for family in "${families[@]}"; do
    [ "$(cat "$LOGS"/cuda_emulated-*-"$family".json | grep '^ "logits_digest"' | sort -u | wc -l)" = 1 ]
  done
  echo "COUNT: $((passed)) tests and $runs runs of ${#families[@]} tiny models, one digest each with the CPU, on emulated GPUs ${EMULATED_GPUS[*]}, native-fp4 on 120x4"
}

stage_tidy() {
  local files
  cmake --preset dev >/dev/null
  mapfile -t files < <(python3 -c 'import json, os
for unit in json.load(open("build/dev/compile_commands.json")):
    path = os.path.relpath(unit["file"])
    if path.startswith(("src/", "apps/")): print(path)' | sort -u)
  printf '%s\n' "${files[@]}" | xargs -P "$JOBS" -n 4 clang-tidy -p build/dev --quiet
  echo "COUNT: ${#files[@]} sources"
}
