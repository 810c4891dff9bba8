"""Runs ggml's CPU kernels for `nibble bench op --against ggml`.

The first line of stdin is the task: {"format", "n", "k", "m", "threads", "bytes"}. It is answered with {"description": ...}
or {"error": ...}; each further line with {"seconds"}, of one matrix. Weights of at least `bytes` lie in copies that are
multiplied in turn, in one graph of as many ggml_mul_mat, so that starting ggml's threads is not counted once a matrix.
A type that ggml repacks for this CPU is repacked; activations are [m, k] of f32, as in a model.
"""
import ctypes
import json
import pathlib
import sys
import time

TYPES = {"f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10, "q3_k": 11, "q4_k": 12, "q5_k": 13,
         "q6_k": 14, "bf16": 30, "nvfp4": 40}
F32 = 0
POINTER, SIZE = ctypes.c_void_p, ctypes.c_size_t


def answer(**fields):
    print(json.dumps(fields), flush=True)


class InitParams(ctypes.Structure):
    _fields_ = [("mem_size", SIZE), ("mem_buffer", POINTER), ("no_alloc", ctypes.c_bool)]


class Ggml:
    """The functions at hand, of whichever of the libraries has them."""

    def __init__(self):
        import llama_cpp
        self.version = llama_cpp.__version__
        self.system = llama_cpp.llama_print_system_info().decode().strip()
        folder = pathlib.Path(llama_cpp.__file__).parent / "lib"
        self.libraries = [ctypes.CDLL(str(folder / ("lib%s.so" % name))) for name in ("ggml-base", "ggml-cpu")]

    def call(self, name, restype, *arguments):
        for library in self.libraries:
            function = getattr(library, name, None)
            if function is not None:
                function.restype = restype
                return function(*arguments)
        raise RuntimeError("this ggml has no " + name)

    def pointer(self, name, *arguments):
        found = self.call(name, POINTER, *arguments)
        if not found:
            raise RuntimeError(name + " failed")
        return POINTER(found)

    def context(self, tensors):
        return self.pointer("ggml_init", InitParams((tensors + 8) * 1024 + (1 << 20), None, True))


def buffer_types(ggml, device):
    """The one of each kind of repacking, then plain memory."""
    name = b"ggml_backend_dev_get_extra_bufts"
    registry = ggml.pointer("ggml_backend_cpu_reg")
    address = ggml.call("ggml_backend_reg_get_proc_address", POINTER, registry, name)
    found = []
    if address:
        extra = ctypes.CFUNCTYPE(ctypes.POINTER(POINTER), POINTER)(address)(device)
        while extra and extra[len(found)]:
            found.append(POINTER(extra[len(found)]))
    return found + [ggml.pointer("ggml_backend_cpu_buffer_type")]


class Layer:
    def __init__(self, ggml, task):
        self.ggml = ggml
        kind, n, k, m = TYPES[task["format"]], task["n"], task["k"], task["m"]
        dims = ctypes.c_int64(k), ctypes.c_int64(n)
        row = ggml.call("ggml_row_size", SIZE, kind, dims[0])
        self.copies = max(1, -(-task["bytes"] // (row * n)))
        data = self.weights(kind, n, k, row)
        self.backend = ggml.pointer("ggml_backend_cpu_init")
        ggml.call("ggml_backend_cpu_set_n_threads", None, self.backend, task["threads"])
        device = ggml.pointer("ggml_backend_get_device", self.backend)
        for memory in buffer_types(ggml, device):
            context = ggml.context(self.copies)
            matrices = [ggml.pointer("ggml_new_tensor_2d", context, kind, *dims) for _ in range(self.copies)]
            buffer = ggml.call("ggml_backend_alloc_ctx_tensors_from_buft", POINTER, context, memory)
            if not buffer:
                continue
            ggml.call("ggml_backend_buffer_set_usage", None, POINTER(buffer), 1)  # weights
            self.build(matrices, k, m)
            if ggml.call("ggml_backend_dev_supports_op", ctypes.c_bool, device, self.products[0]):
                break
        else:
            raise RuntimeError("ggml cannot multiply " + task["format"] + " here")
        self.memory = ggml.call("ggml_backend_buft_name", ctypes.c_char_p, memory).decode()
        for matrix in matrices:
            ggml.call("ggml_backend_tensor_set", None, matrix, data, SIZE(0), SIZE(len(data)))
        self.allocate()

    def weights(self, kind, n, k, row):
        """[n, k] as ggml quantizes them, the first rows again and again: what they are does not change the time."""
        rows = min(n, 16)
        floats = (ctypes.c_float * (rows * k))(*(((i * 2654435761) % 2048 - 1024) / 1024 for i in range(rows * k)))
        some = ctypes.create_string_buffer(rows * row)
        self.ggml.call("ggml_quantize_chunk", SIZE, kind, floats, some, ctypes.c_int64(0), ctypes.c_int64(rows),
                       ctypes.c_int64(k), None)
        return (some.raw * (-(-n // rows)))[:n * row]

    def build(self, matrices, k, m):
        ggml = self.ggml
        self.graph_context = ggml.context(3 * self.copies + 64)
        self.x = ggml.pointer("ggml_new_tensor_2d", self.graph_context, F32, ctypes.c_int64(k), ctypes.c_int64(m))
        self.m, self.k = m, k
        self.products = [ggml.pointer("ggml_mul_mat", self.graph_context, w, self.x) for w in matrices]

    def allocate(self):
        ggml = self.ggml
        plain = ggml.pointer("ggml_backend_cpu_buffer_type")
        ggml.pointer("ggml_backend_alloc_ctx_tensors_from_buft", self.graph_context, plain)
        values = (ctypes.c_float * (self.m * self.k))(*(((i * 40503) % 1024 - 512) / 512 for i in range(self.m * self.k)))
        ggml.call("ggml_backend_tensor_set", None, self.x, values, SIZE(0), SIZE(4 * self.m * self.k))
        self.graph = ggml.pointer("ggml_new_graph_custom", ggml.context(8 * self.copies + 4096), SIZE(self.copies + 64), False)
        for product in self.products:
            ggml.call("ggml_build_forward_expand", None, self.graph, product)

    def sample(self):
        begin = time.monotonic()
        if self.ggml.call("ggml_backend_graph_compute", ctypes.c_int, self.backend, self.graph) != 0:
            raise RuntimeError("ggml_backend_graph_compute failed")
        return {"seconds": (time.monotonic() - begin) / self.copies}


def main():
    task = json.loads(sys.stdin.readline())
    try:
        ggml = Ggml()
        layer = Layer(ggml, task)
        answer(description="ggml of llama-cpp-python %s, %s in %s, %s" % (ggml.version, task["format"], layer.memory,
                                                                          ggml.system))
        for _ in sys.stdin:
            answer(**layer.sample())
    except ImportError as error:
        answer(error="%s cannot import llama_cpp: %s" % (sys.executable, error))
    except (RuntimeError, AttributeError, OSError, KeyError) as error:
        answer(error=str(error))


main()
