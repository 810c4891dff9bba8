#!/usr/bin/env python3
"""Compares the chat templates inside of model files, as chat_template_reference.py does the public ones.

  chat_template_models_reference.py build/dev MODEL.gguf...
"""

import pathlib
import sys

try:
    from gguf import GGUFReader
except ImportError:
    print("NOT RUN: gguf (PyPI) is not installed")
    sys.exit(77)

from chat_template_reference import Comparison, CONTEXTS


def main():
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    comparison = Comparison(sys.argv[1])
    for path in sys.argv[2:]:
        field = GGUFReader(path).fields["tokenizer.chat_template"]
        template = bytes(field.parts[-1]).decode("utf-8")
        comparison.compare_public(pathlib.Path(path).name, template)
        comparison.control(template)
    return comparison.report(f"chat templates of {len(sys.argv) - 2} models x {len(CONTEXTS)} contexts")


if __name__ == "__main__":
    sys.exit(main())
