#!/usr/bin/env python3
"""Hold the tree to ARCHITECTURE.md: who may include whom, and the few habits that a machine can see.

usage: check_layers.py [ROOT]

Prints `file:line: rule: message` for each finding and exits 1 if there is one. Every run first plants one breach of each
rule in a temporary tree and must find exactly those: a check that has gone blind fails before it can pass anything.
Source of the rules: ARCHITECTURE.md, "Layers" and "Habits".
"""
import re
import sys
import tempfile
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

# What a folder may include besides itself. The longest matching folder counts, so kernels/reference has its own line.
SEES = {
    "src/format": set(),
    "src/base": {"format"},
    "src/tensor": {"format", "base"},
    "src/oracle": {"format", "base", "tensor"},
    "src/io": {"format", "base", "tensor"},
    "src/quantize": {"format", "base", "tensor", "io"},
    "src/kernels": {"format", "base", "tensor"},
    "src/kernels/reference": {"format", "base", "tensor", "oracle", "kernels"},
    "src/text": {"base"},
    "src/text/jinja": {"base"},
    "src/model": {"format", "base", "tensor", "io", "kernels"},
    "src/engine": {"format", "base", "tensor", "io", "kernels", "text", "model"},
    "src/measure": {"format", "base", "tensor", "io", "kernels", "text", "model", "engine"},
    "src/server": {"base", "text", "engine"},
    "apps": {"format", "base", "tensor", "io", "quantize", "kernels", "text", "model", "engine", "measure",
             "server"},
}
LAYERS = {folder.split("/")[1] for folder in SEES if folder.startswith("src/")}
BACKENDS = ("cpu", "cuda", "metal", "reference", "none")

# Headers of a vendor or an instruction set, and the only places that may name them.
VENDOR = [
    (re.compile(r"(x86|[a-z]*mm|avx\w*)intrin\.h$|^cpuid\.h$|^arm_\w+\.h$|^sys/auxv\.h$"), ("src/kernels/cpu/",)),
    (re.compile(r"^(cuda|cublas|cutlass|cute|nvrtc|nvtx|mma)\w*[./]|^cuda_\w+$"), ("src/kernels/cuda/", "tools/cuda_", "tests/cuda_emulation/", "tests/kernels/cuda_")),
    (re.compile(r"^[Mm]etal(_\w+|/.*)?$|^(Foundation|QuartzCore|AppKit)/"), ("src/kernels/metal/",)),
]
# Freestanding headers define no inline function, so an object with its own instruction set may include them.
FREESTANDING = {"cstdint", "cstddef", "stdint.h", "stddef.h"}
# Where the preprocessor may choose: (file pattern, what the condition must name).
CONDITIONALS = [
    (re.compile(r"^src/format/portable\.h$"), re.compile(r".")),
    (re.compile(r"^src/base/"), re.compile(r"__linux__|__APPLE__|_WIN32|__unix__")),
    (re.compile(r"^src/kernels/cpu/(detect|simd_\w+)\.(cc|h)$"), re.compile(r"__\w+__|__ARM_\w+|NIBBLE_HAVE_")),
    (re.compile(r"^src/kernels/cuda/\w+\.(cu|cuh)$"), re.compile(r"__CUDA_ARCH_")),
    (re.compile(r"^src/kernels/"), re.compile(r"NIBBLE_HAVE_")),
    (re.compile(r"^src/"), re.compile(r"NIBBLE_PERTURB_ROUNDING|NIBBLE_UNPINNED")),
]
SEES_BACKENDS = {"apps/doctor.cc"}  # it reports on each of them
WARN_LINES, MAX_LINES = 400, 800
SOURCE = re.compile(r"\.(h|hpp|cc|cpp|inl|cu|cuh|metal|mm)$")
TEXT = re.compile(r"\.(h|hpp|cc|cpp|inl|cu|cuh|metal|mm|py|sh|md|txt|cmake|json|yml)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITIONAL = re.compile(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)")


class Finding(NamedTuple):
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


class Tree:
    """The files of a checkout, as tracked by git where there is a git, else everything."""

    def __init__(self, root: Path):
        self.root = root
        folders = ("src", "apps", "include", "tests", "tools", "fuzz", "bench", "scripts", "docs", "cmake", "bindings")
        paths = [p for folder in folders for p in sorted((root / folder).rglob("*"))]
        paths += sorted(root.glob("*.md")) + sorted(root.glob("*.txt")) + sorted(root.glob("*.json"))
        self.texts: dict[str, list[str]] = {}
        for path in paths:
            if path.is_file() and TEXT.search(path.name) and "__pycache__" not in path.parts:
                name = path.relative_to(root).as_posix()
                self.texts[name] = path.read_text(encoding="utf-8", errors="replace").splitlines()

    def sources(self, *prefixes: str) -> Iterator[tuple[str, list[str]]]:
        for name, lines in self.texts.items():
            if SOURCE.search(name) and name.startswith(prefixes):
                yield name, lines


def includes(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def code_of(line: str) -> str:
    """The line without string literals and line comments."""
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return re.sub(r"//.*", "", line)


def home_of(path: str) -> str:
    """The longest folder of SEES that holds the file, or '' for tests and tools, which see everything."""
    return max((f for f in SEES if path.startswith(f + "/")), key=len, default="")


def check_includes(tree: Tree) -> Iterator[Finding]:
    for path, lines in tree.sources("src/", "apps/"):
        home = home_of(path)
        if not home:
            yield Finding(path, 1, "layer", "this folder has no place in tools/check_layers.py and ARCHITECTURE.md")
            continue
        layer = home.split("/")[1] if home != "apps" else "apps"
        for number, quote, target in includes(lines):
            if quote == "<":
                continue
            if (tree.root / path).parent.joinpath(target).is_file() and "/" not in target:
                continue  # a neighbour in the same folder
            wanted = target.split("/")[0]
            if wanted == "apps" and layer == "apps":
                continue
            if wanted not in LAYERS:
                yield Finding(path, number, "layer", f'"{target}" names no layer; write "<layer>/<file>"')
            elif wanted != layer and wanted not in SEES[home]:
                yield Finding(path, number, "layer", f"{home} may not include {target}; it sees "
                              + (", ".join(sorted(SEES[home])) or "nothing else"))
            elif wanted == "kernels":
                yield from check_backend(path, number, target)


def check_backend(path: str, number: int, target: str) -> Iterator[Finding]:
    """Above kernels/ only the seam is visible, and no backend knows another one."""
    parts = target.split("/")
    if len(parts) < 3 or parts[1] not in BACKENDS:
        return
    inside = path.split("/")[2] if path.startswith("src/kernels/") and path.count("/") > 2 else ""
    if path in SEES_BACKENDS:
        return
    if not path.startswith("src/kernels/"):
        yield Finding(path, number, "backend", f"{target} belongs to one backend; include kernels/backend.h")
    elif inside and inside != parts[1]:
        yield Finding(path, number, "backend", f"backend {inside} may not include backend {parts[1]}")


def check_vendor(tree: Tree) -> Iterator[Finding]:
    for path, lines in tree.sources("src/", "apps/", "include/", "tests/", "tools/", "fuzz/", "bench/"):
        for number, _, target in includes(lines):
            for pattern, folders in VENDOR:
                if pattern.search(target) and not path.startswith(folders) and path != "src/format/portable.h":
                    yield Finding(path, number, "vendor", f"<{target}> may be included in {folders[0]} only")


def check_format_is_portable(tree: Tree) -> Iterator[Finding]:
    for path, lines in tree.sources("src/format/"):
        for number, quote, target in includes(lines):
            if quote == "<" and path != "src/format/portable.h":
                yield Finding(path, number, "portable", f"<{target}>: src/format/ includes no std header, portable.h excepted")


def check_isa_objects(tree: Tree) -> Iterator[Finding]:
    """An object compiled for a wide instruction set must not bring inline std functions that the linker could pick."""
    for start, _ in tree.sources("src/kernels/cpu/kernels_"):
        seen, queue = {start}, [start]
        while queue:
            path = queue.pop()
            for number, quote, target in includes(tree.texts.get(path, [])):
                inner = f"src/{target}"
                if quote == '"' and inner not in seen:
                    seen.add(inner)
                    queue.append(inner)
                elif (quote == "<" and target not in FREESTANDING and not VENDOR[0][0].search(target)
                      and path != "src/format/portable.h"):  # its includes are other compilers' business
                    yield Finding(path, number, "isa-object", f"{start} includes std header <{target}> through this line")


def check_conditionals(tree: Tree) -> Iterator[Finding]:
    for path, lines in tree.sources("src/", "apps/", "include/"):
        for number, line in enumerate(lines, 1):
            match = CONDITIONAL.match(line)
            if match and not any(p.search(path) and what.search(match[1]) for p, what in CONDITIONALS):
                yield Finding(path, number, "conditional", f"the preprocessor may not choose here: #if{match[1]}".rstrip())


MUTABLE = re.compile(r"^\s*(?:(?:inline|static|thread_local)\s+)+(?!.*\b(?:const|constexpr|NIBBLE_CONSTANT)\b)[\w:<>,\s*&]+?\s*[*&\s]\w+\s*(?:=|;|\{|\[)")
MUTABLE_PLAIN = re.compile(r"^(?!.*\b(?:using|typedef)\b|return|namespace|class|struct|enum|union|template|extern|friend|public|private)"
                           r"(?!.*\b(?:const|constexpr|NIBBLE_CONSTANT)\b)[A-Za-z_][\w:<>,*& ]*[*& ]\w+(?:\[\w*\])?\s*(?:=[^=]|;|\{[^;]*\};)")


def check_mutable_globals(tree: Tree) -> Iterator[Finding]:
    """Cheap: clang-tidy's check is the thorough one. Google style puts namespace members in column 0."""
    for path, lines in tree.sources("src/", "apps/", "include/"):
        for number, line in enumerate(lines, 1):
            code = code_of(line)
            if "(" in code.split("=")[0] or "sig_atomic_t" in code:  # a signal handler can reach nothing else
                continue
            if MUTABLE.match(code) or MUTABLE_PLAIN.match(code):
                yield Finding(path, number, "global", f"mutable state outside of any object: {code.strip()}")


def check_length(tree: Tree) -> Iterator[Finding]:
    for path, lines in tree.sources("src/", "apps/", "include/", "tests/", "tools/", "fuzz/", "bench/"):
        if len(lines) > MAX_LINES:
            yield Finding(path, len(lines), "length", f"{len(lines)} lines; over {MAX_LINES} a file is split")


# (rule, files, pattern, reason). Patterns are matched without string literals and comments unless 'raw' is given.
FORBIDDEN = [
    ("library-prints", ("src/",), re.compile(r"\bstd::(cout|cerr|clog)\b|\b(f?printf|puts|fputs)\s*\(|\bfmt::print"),
     "the library never prints; return an Error"),
    ("library-exits", ("src/",), re.compile(r"\b(std::)?(exit|_Exit|quick_exit|abort|terminate)\s*\("),
     "the library never exits; return an Error"),
    ("libm", ("src/format/", "src/oracle/", "src/kernels/", "src/model/", "src/engine/"),
     re.compile(r"\bstd::(exp2?|expm1|log(2|10|1p)?|pow|sin|cos|tan|tanh|sinh|cosh|atan2?|erf|cbrt|reduce|hypot)f?\s*\("),
     "libm differs between machines; docs/contract.md section 1 allows fma + - * / sqrt only"),
    ("disabled-test", ("tests/",), re.compile(r"\bDISABLED_\w+"), "a test that never runs"),
]
RAW_FORBIDDEN = [
    ("marker", ("src/", "apps/", "include/", "tests/", "tools/", "fuzz/", "bench/", "scripts/", "cmake/"),
     re.compile(r"\b(TODO|FIXME|XXX)\b(?!\|)"), "finish it, or say in the docs what is not there"),
    ("fast-math", ("src/", "cmake/", "CMake"), re.compile(r"-ffast-math|FP_CONTRACT\s+ON|-Ofast"),
     "changes the bits"),
]
EXEMPT = {("library-exits", "src/base/check.cc"), ("library-prints", "src/base/check.cc"),
          ("marker", "tools/check_layers.py"), ("fast-math", "tools/check_layers.py")}


def check_forbidden(tree: Tree) -> Iterator[Finding]:
    machine_path = re.compile(r"/root/|/home/\w+/" + (
        "|" + re.escape(f"{tree.root.parent}/") if len(tree.root.parent.parts) > 1 else ""))
    for path, lines in tree.texts.items():
        for number, line in enumerate(lines, 1):
            code = code_of(line) if SOURCE.search(path) else line
            for rule, folders, pattern, reason in FORBIDDEN:
                if path.startswith(folders) and pattern.search(code) and (rule, path) not in EXEMPT:
                    yield Finding(path, number, rule, reason)
            for rule, folders, pattern, reason in RAW_FORBIDDEN:
                if path.startswith(folders) and pattern.search(line) and (rule, path) not in EXEMPT:
                    yield Finding(path, number, rule, reason)
            if machine_path.search(line) and path != "tools/check_layers.py":
                yield Finding(path, number, "machine-path", "a path of one person's machine")


FLAG = re.compile(r"(?<![\w-])--[a-z]")


def check_flags(tree: Tree) -> Iterator[Finding]:
    """A command may lack the flag that a layer below it names; whole commands in single quotes are somebody's own."""
    for path, lines in tree.sources("src/"):
        for number, line in enumerate(lines, 1):
            for text in re.findall(r'"((?:\\.|[^"\\])*)"', re.sub(r"^\s*//.*", "", line)):
                if FLAG.search(re.sub(r"'[^']*'", "", text)):
                    yield Finding(path, number, "flag", "only apps/ know flags; write {backend=cpu} (src/base/hint.h)")


def check_tests_are_built(tree: Tree) -> Iterator[Finding]:
    """tests/CMakeLists.txt globs tests/<layer>/*.cc for the layers that it names; anything else would never run."""
    listing = "\n".join(tree.texts.get("tests/CMakeLists.txt", []))
    match = re.search(r"foreach\(layer ([^)]*)\)", listing)
    built = set(match[1].split()) if match else set()
    for path, _ in tree.sources("tests/"):
        parts = path.split("/")
        if path.endswith("_test.cc") and (len(parts) != 3 or parts[1] not in built):
            yield Finding(path, 1, "unbuilt-test", f"tests/CMakeLists.txt builds tests/<layer>/*.cc of: {' '.join(sorted(built))}")


CHECKS: list[Callable[[Tree], Iterator[Finding]]] = [
    check_includes, check_vendor, check_format_is_portable, check_isa_objects, check_conditionals,
    check_mutable_globals, check_length, check_forbidden, check_flags, check_tests_are_built,
]


def findings(root: Path) -> list[Finding]:
    tree = Tree(root)
    return sorted(f for check in CHECKS for f in check(tree))


# One breach a line: (file, text, line and rule that must be found, None for what must stay clean).
PLANTED = [
    ("src/base/up.h", '#pragma once\n#include "io/gguf_reader.h"\n', (2, "layer")),
    ("src/text/side.cc", '#include "tensor/shape.h"\n', (1, "layer")),
    ("src/engine/fast.cc", '#include "oracle/linear.h"\n', (1, "layer")),
    ("src/kernels/cpu/cheat.cc", '#include "oracle/linear.h"\n', (1, "layer")),
    ("src/kernels/reference/fine.cc", '#include "oracle/linear.h"\n#include "kernels/backend.h"\n', None),
    ("src/model/bare.cc", '#include "nowhere.h"\n', (1, "layer")),
    ("src/attic/lost.cc", "int f();\n", (1, "layer")),
    ("src/model/below.cc", '#include "kernels/cpu/dispatch.h"\n', (1, "backend")),
    ("src/kernels/cpu/other.cc", '#include "kernels/cuda/gemv.h"\n', (1, "backend")),
    ("src/io/fast.cc", "\n#include <immintrin.h>\n", (2, "vendor")),
    ("apps/gpu.cc", "#include <cuda_runtime.h>\n", (1, "vendor")),
    ("apps/chat.cc", '#include "apps/console.h"\n#include "engine/session.h"\n', None),
    ("src/engine/upward.cc", '#include "apps/console.h"\n', (1, "layer")),
    ("src/kernels/cpu/simd_avx2.h", "#include <immintrin.h>\n", None),
    ("src/format/e2m1.h", "#include <cmath>\n", (1, "portable")),
    ("src/kernels/cpu/kernels_avx2.cc", '#include "kernels/cpu/gemv.inl"\n', None),
    ("src/kernels/cpu/gemv.inl", "#include <vector>\n", (1, "isa-object")),
    ("src/model/choose.cc", "#ifdef __AVX2__\n#endif\n", (1, "conditional")),
    ("src/format/portable.h", "#if defined(__CUDACC__)\n#endif\n", None),
    ("src/engine/flag.cc", 'const char* kHint = "pass --ctx, or more";\n', (1, "flag")),
    ("src/engine/flag2.cc", "// --ctx\nconst char* kHint = \"'nibble run --json'; {ctx} -- or so\";\n", None),
    ("src/engine/state.cc", "static int counter = 0;\n", (1, "global")),
    ("src/engine/state2.cc", "std::string last_error;\n", (1, "global")),
    ("src/engine/state3.cc", "static constexpr int kLimit = 3;\nstd::string name();\nusing A = int;\n__extension__ using B = int;\n", None),
    ("src/io/long.cc", "int f();\n" * (MAX_LINES + 1), (MAX_LINES + 1, "length")),
    ("src/io/talk.cc", 'void f() { std::printf("hi"); }\n', (1, "library-prints")),
    ("src/io/quit.cc", "void f() { exit(1); }\n", (1, "library-exits")),
    ("src/oracle/soft.cc", "float f(float x) { return std::exp(x); }\n", (1, "libm")),
    ("src/io/quiet.cc", '// std::exp( and printf( in words\nconst auto s = "exit(1)"_sv;\n', None),
    ("src/tensor/later.h", "// TO" + "DO: everything\n", (1, "marker")),
    ("src/tensor/path.h", "// see /ro" + "ot/notes\n", (1, "machine-path")),
    ("cmake/fast.cmake", "add_compile_options(-ffast-" + "math)\n", (1, "fast-math")),
    ("tests/io/off_test.cc", "TEST(A, DISABLED_b) {}\n", (1, "disabled-test")),
    ("tests/attic/lost_test.cc", "TEST(A, b) {}\n", (1, "unbuilt-test")),
    ("tests/CMakeLists.txt", "foreach(layer base io)\nendforeach()\n", None),
]


def self_test() -> list[str]:
    """The positive control: what is wrong with this very program, as sentences."""
    with tempfile.TemporaryDirectory(prefix="check_layers_") as folder:
        root = Path(folder)
        for name, text, _ in PLANTED:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        found = {(f.path, f.line, f.rule) for f in findings(root)}
    wanted = {(name, *breach) for name, _, breach in PLANTED if breach}
    return [f"planted breach not found: {b}" for b in sorted(wanted - found)] + [
        f"false alarm in the planted tree: {b}" for b in sorted(found - wanted)]


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    blind = self_test()
    for sentence in blind:
        print(f"check_layers: {sentence}")
    if blind:
        return 1
    tree = Tree(root)
    breaches = findings(root)
    for finding in breaches:
        print(finding)
    for path, lines in tree.sources("src/", "apps/", "include/"):
        if WARN_LINES < len(lines) <= MAX_LINES:
            print(f"{path}:{len(lines)}: warning: {len(lines)} lines; over {WARN_LINES} needs a reason")
    n_sources = sum(1 for _ in tree.sources("src/", "apps/", "include/", "tests/", "tools/", "fuzz/", "bench/"))
    if not n_sources:
        print(f"check_layers: no source file under {root}")
        return 1
    n_planted = sum(1 for _, _, breach in PLANTED if breach)
    print(f"check_layers: {n_sources} source files, {len(breaches)} findings ({n_planted} planted breaches found)")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
