#!/usr/bin/env python3
"""scripts/gpu_check.sh refuses a mistaken command line before it looks for a GPU."""
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/gpu_check.sh"


class Usage(unittest.TestCase):
    def refused(self, words: str, *arguments: str) -> None:
        result = subprocess.run(["bash", str(SCRIPT), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2, f"{arguments}: {result.stderr}")
        self.assertIn(f"error: {words}\n", result.stderr)
        self.assertIn("--help", result.stderr)

    def test_a_flag_without_its_value(self) -> None:
        for flag in ("--bundle", "--out", "--prepare", "--without"):
            for value in ((), ("",), ("--help",)):
                self.refused(f"{flag} needs a value", flag, *value)

    def test_what_is_not_there(self) -> None:
        with tempfile.TemporaryDirectory(prefix="gpu_check_") as empty:
            self.refused(f"{empty} is not a bundle", "--bundle", empty)
        self.refused("no/such/folder is not a bundle", "--bundle", "no/such/folder")
        self.refused("there is no model 'no/such.gguf'", "no/such.gguf")

    def test_what_has_another_name(self) -> None:
        self.refused("there is no part 'test'", "--without", "test")
        self.refused("there is no part 'canary tests'", "--without", "canary tests")
        self.refused("there is no flag --output", "--output", "out")


if __name__ == "__main__":
    unittest.main()
