"""Runs llama.cpp through llama-cpp-python for `nibble bench --against llama.cpp`.

The first line of stdin is the task: {"model", "work": "decode" or "prefill", "prefix": [ids], "tokens": [ids],
"threads"}. It is answered with {"description": ...} or {"error": ...}; each further line with a sample
{"seconds", "digest"}: of the f32 logits after the last token. Only llama_decode is inside of the clock, so that nothing
of Python's is counted against llama.cpp: about 20 us a call.
"""
import ctypes
import hashlib
import json
import sys
import time


def answer(**fields):
    print(json.dumps(fields), flush=True)


class Model:
    def __init__(self, task):
        import llama_cpp
        self.lib = llama_cpp
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        self.prefix, self.tokens, self.work = task["prefix"], task["tokens"], task["work"]
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(task["model"].encode(), model_params)
        if not self.model:
            raise RuntimeError("llama.cpp cannot load " + task["model"])
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = len(self.prefix) + len(self.tokens) + 8
        params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = task["threads"]
        params.no_perf = True
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError("llama.cpp cannot make a context")
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        if max(self.prefix + self.tokens) >= self.n_vocab:
            raise RuntimeError("this GGUF has another vocabulary")

    def description(self):
        name = ctypes.create_string_buffer(256)
        self.lib.llama_model_desc(self.model, name, 256)
        return "llama-cpp-python %s, %s, %s" % (self.lib.__version__, name.value.decode(),
                                                self.lib.llama_print_system_info().decode().strip())

    def decode(self, tokens):
        array = (self.lib.llama_token * len(tokens))(*tokens)  # the batch points into it
        if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, len(tokens))) != 0:
            raise RuntimeError("llama_decode failed")

    def prefill(self, tokens):
        for i in range(0, len(tokens), 512):
            self.decode(tokens[i:i + 512])

    def sample(self):
        memory = self.lib.llama_get_memory(self.context)
        if self.work == "prefill":
            self.lib.llama_memory_clear(memory, True)
            pieces = [self.tokens[i:i + 512] for i in range(0, len(self.tokens), 512)]
        else:
            if not self.lib.llama_memory_seq_rm(memory, 0, len(self.prefix), -1) or self.lib.llama_memory_seq_pos_max(
                    memory, 0) != len(self.prefix) - 1:
                self.lib.llama_memory_clear(memory, True)
                self.prefill(self.prefix)
            pieces = [[token] for token in self.tokens]
        arrays = [((self.lib.llama_token * len(p))(*p), len(p)) for p in pieces]
        self.lib.llama_synchronize(self.context)
        begin = time.monotonic()
        for array, n in arrays:
            if self.lib.llama_decode(self.context, self.lib.llama_batch_get_one(array, n)) != 0:
                raise RuntimeError("llama_decode failed")
        self.lib.llama_synchronize(self.context)
        seconds = time.monotonic() - begin
        logits = ctypes.string_at(self.lib.llama_get_logits_ith(self.context, -1), 4 * self.n_vocab)
        return {"seconds": seconds, "digest": hashlib.sha256(logits).hexdigest()}


def main():
    task = json.loads(sys.stdin.readline())
    try:
        model = Model(task)
        answer(description=model.description())
        for _ in sys.stdin:
            answer(**model.sample())
    except ImportError as error:
        answer(error="%s cannot import llama_cpp: %s" % (sys.executable, error))
    except (RuntimeError, AttributeError, OSError) as error:
        answer(error=str(error))


main()
