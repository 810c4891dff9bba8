#!/usr/bin/env python3
"""tools/check_claims on a small repository: clean it passes, and each planted breach is found by its rule."""
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = """# a project

<!-- claims: measured -->
| what | figure |
| --- | --- |
| decoding | A is faster: 12.3 tok/s, 1.50 x |
| equality | one digest in 2 runs |
<!-- claims end -->

The file takes 98 MB
on the disk. Version 1.2 of 2025.
"""
CLAIMS = """
[[block]]
file = "README.md"
name = "measured"
columns = ["what", "figure"]

[[claim]]
id = "decode"
block = "measured"
scope = "one machine"
words = ["faster"]
interval = { receipt = "bench/a.json", path = "/speed" }
cells = ["decoding", "A is faster: {rate} tok/s, {ratio} x"]
figures.rate = { receipt = "bench/a.json", path = "/cells/0/rate", format = ".1f" }
figures.ratio = { receipt = "bench/a.json", path = "/speed/ratio", format = ".2f" }

[[claim]]
id = "equality"
block = "measured"
scope = "one machine"
cells = ["equality", "one digest in {n} runs"]
figures.n = { receipt = "bench/b.json", path = "/runs/#", format = "d" }
require = [{ receipt = "bench/b.json", path = "/equal", is = true }]

[[claim]]
id = "size"
file = "README.md"
scope = "one file"
text = "The file takes {size} MB on the disk."
figures.size = { receipt = "bench/b.json", path = "/bytes", scale = 1e-6, format = ".0f" }
"""


class CheckClaims(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="check_claims_")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "tree"
        for name in ("docs", "bench"):
            (self.root / name).mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.git("commit", "-q", "--allow-empty", "-m", "first")
        commit = self.git("rev-parse", "--short=12", "HEAD").strip()
        self.a = {"commit": commit, "cells": [{"rate": 12.3456}], "speed": {"ratio": 1.5, "low": 1.2, "high": 1.7}}
        self.b = {"commit": commit, "runs": [1, 2], "equal": True, "bytes": 98000000}
        self.readme, self.claims = README, CLAIMS

    def git(self, *arguments: str, root: Path | None = None) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(["git", "-C", str(root or self.root), *identity, *arguments], check=True, capture_output=True,
                              text=True).stdout

    def write(self) -> None:
        (self.root / "README.md").write_text(self.readme, encoding="utf-8")
        (self.root / "docs/claims.toml").write_text(self.claims, encoding="utf-8")
        (self.root / "bench/a.json").write_text(json.dumps(self.a), encoding="utf-8")
        (self.root / "bench/b.json").write_text(json.dumps(self.b), encoding="utf-8")

    def check(self, *options: str, root: Path | None = None) -> tuple[int, str]:
        if root is None:
            self.write()
        result = subprocess.run(["python3", str(ROOT / "tools/check_claims"), *options, str(root or self.root)],
                                capture_output=True, text=True, check=False)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout

    def assert_found(self, rule: str, words: str) -> None:
        status, output = self.check()
        self.assertEqual(status, 1, output)
        self.assertTrue(any(line.startswith(rule + ":") and words in line for line in output.splitlines()), output)

    def test_a_clean_tree_passes(self) -> None:
        self.assertEqual(self.check(), (0, "check_claims: 3 claims, 2 receipts, 0 findings\n"))

    def test_a_figure_that_is_not_the_receipts(self) -> None:
        self.readme = README.replace("12.3 tok/s", "12.4 tok/s")
        self.assert_found("figure", "README.md:6")

    def test_a_receipt_that_has_moved_on(self) -> None:
        self.a["cells"][0]["rate"] = 11
        self.assert_found("figure", "README.md:6")

    def test_write_mends_the_table(self) -> None:
        self.readme = README.replace("12.3 tok/s", "99 tok/s")
        self.assertEqual(self.check("--write")[0], 0)
        self.assertEqual((self.root / "README.md").read_text(encoding="utf-8"), README)

    def test_a_sentence_that_is_not_the_receipts(self) -> None:
        self.b["bytes"] = 97000000
        self.assert_found("figure", "does not say what claim 'size' says")

    def test_figures_and_words_without_a_claim(self) -> None:
        self.readme = README + "\nIt needs 3 GB.\n"
        self.assert_found("figure", "'3 GB' is in no claim")
        self.readme = README + "\nIt is faster than light.\n"
        self.assert_found("words", "'faster' is in no claim")

    def test_a_figure_typed_by_hand(self) -> None:
        self.claims = CLAIMS.replace("{rate} tok/s", "12.3 tok/s")
        self.assert_found("figure", "typed by hand")

    def test_faster_where_the_interval_includes_one(self) -> None:
        self.a["speed"]["low"] = 0.98
        self.assert_found("words", "0.980 to 1.700")

    def test_faster_without_leave_or_interval(self) -> None:
        self.claims = CLAIMS.replace('words = ["faster"]', "words = []")
        self.assert_found("words", "do not allow")
        self.claims = CLAIMS.replace('interval = { receipt = "bench/a.json", path = "/speed" }\n', "")
        self.assert_found("words", "names no interval")

    def test_slower_is_held_to_the_other_end(self) -> None:
        self.claims = CLAIMS.replace("faster", "slower")
        self.readme = README.replace("faster", "slower")
        self.assert_found("words", "says 'slower'")

    def test_a_key_that_stands_twice_in_a_receipt(self) -> None:
        self.write()
        path = self.root / "bench/b.json"
        path.write_text(path.read_text(encoding="utf-8").replace("{", '{"equal": false, ', 1), encoding="utf-8")
        status, output = self.check(root=self.root)
        self.assertEqual(status, 1)
        self.assertIn("receipt: bench/b.json: the key 'equal' stands twice", output)

    def test_an_element_by_its_fields(self) -> None:
        self.a["cells"] = [{"op": "gemm", "m": 1, "rate": 5}, {"op": "gemv", "m": 1, "rate": 12.3456}]
        self.claims = CLAIMS.replace("/cells/0/rate", "/cells/op=gemv,m=1/rate")
        self.assertEqual(self.check()[0], 0)
        self.claims = CLAIMS.replace("/cells/0/rate", "/cells/m=1/rate")
        self.assert_found("receipt", "has no /cells/m=1/rate")  # two of them
        self.claims = CLAIMS.replace("/cells/0/rate", "/cells/op=conv/rate")
        self.assert_found("receipt", "has no /cells/op=conv/rate")

    def test_a_verdict_is_the_intervals(self) -> None:
        self.claims = CLAIMS.replace("A is faster:", "A is {word}:").replace("slower", "") + "\n"
        self.claims = self.claims.replace('figures.rate =', 'figures.word = { receipt = "bench/a.json", path = "/speed", as = "verdict" }\n'
                                          'figures.rate =')
        self.assertEqual(self.check()[0], 0)
        self.a["speed"]["low"] = 0.98
        self.assertEqual(self.check("--write")[0], 0)
        self.assertIn("A is no difference can be told", (self.root / "README.md").read_text(encoding="utf-8"))

    def test_no_verdict_where_a_side_was_kept_waiting(self) -> None:
        self.claims = CLAIMS.replace("A is faster:", "A is {word}:").replace("slower", "") + "\n"
        self.claims = self.claims.replace('figures.rate =', 'figures.word = { receipt = "bench/a.json", path = "/speed", as = "verdict" }\n'
                                          'figures.rate =')
        self.a["peer"] = {"samples_s": [1.0, 1.9, 1.9]}
        self.assertEqual(self.check()[0], 0)
        self.a["peer"] = {"samples_s": [1.0, 2.1, 2.2]}
        self.assertEqual(self.check("--write")[0], 0)
        self.assertIn("A is no verdict, one side was kept waiting", (self.root / "README.md").read_text(encoding="utf-8"))

    def test_rows_of_a_block_share_cells_and_figures(self) -> None:
        block = """
[[block]]
file = "README.md"
name = "speed"
columns = ["model", "rate", "runs"]
cells = ["{model}", "{rate} tok/s", "{runs}"]
scope = "{model} on one machine"
receipt = "bench/{file}.json"
when_present = true
figures.rate = { path = "/cells/{cell}/rate", format = ".1f" }
figures.runs = { path = "/cells/{cell}/rate", over = "/speed/ratio", format = ".0f" }
rows = [
  { model = "A", file = "a", cell = "0" },
  { model = "C", file = "c", cell = "0" },
]
"""
        self.claims = CLAIMS + block
        self.readme = README + "\n<!-- claims: speed -->\n<!-- claims end -->\n"
        self.assertEqual(self.check("--write"), (0, "check_claims: 4 claims, 2 receipts, 0 findings\n"))
        text = (self.root / "README.md").read_text(encoding="utf-8")
        self.assertIn("| A | 12.3 tok/s | 8 |\n<!-- claims end -->", text)  # and no row of a receipt that is not there
        self.claims = self.claims.replace('model = "A"', 'model = "A at 9 tok/s"')
        self.assert_found("figure", "'9 tok/s' was typed by hand")
        self.claims = self.claims.replace('file = "a", cell = "0"', 'file = "a", cell = "7"')
        self.assert_found("receipt", "bench/a.json has no /cells/7/rate")
        self.claims = self.claims.replace("when_present = true\n", "")
        self.assert_found("receipt", "bench/c.json")

    def test_a_page_with_figures_is_held_or_says_that_it_has_notes(self) -> None:
        page = self.root / "docs/work.md"
        page.write_text("It took 12 % more.\n", encoding="utf-8")
        self.assert_found("figure", "docs/work.md:1: '12 %' is in no claim")
        self.claims = CLAIMS + '\n[[notes]]\nfile = "docs/work.md"\nsays = "Notes of the work."\n'
        self.assert_found("figure", "docs/work.md holds notes and does not say so")
        page.write_text("Notes of\nthe work. It took 12 % more.\n", encoding="utf-8")
        self.assertEqual(self.check()[0], 0)

    def test_a_commit_of_another_branch(self) -> None:
        self.git("checkout", "-q", "--orphan", "other")
        self.git("commit", "-q", "--allow-empty", "-m", "elsewhere")
        self.a["commit"] = self.git("rev-parse", "HEAD").strip()
        self.git("checkout", "-q", "main")
        self.assert_found("commit", "no ancestor of HEAD")

    def test_commits_that_say_nothing(self) -> None:
        for commit in (self.a["commit"] + "+", "unknown", None):
            self.a["commit"] = commit
            self.assert_found("commit", "not made by a commit")
        self.a["commit"] = "0123456789ab"
        self.assert_found("commit", "unknown here")

    def test_a_path_of_the_machine_that_made_a_receipt(self) -> None:
        self.a["build_flags"] = "-isystem build/usr/include -O2"
        self.assertEqual(self.check()[0], 0)
        self.a["build_flags"] = "-isystem /opt/somewhere/include -O2"
        self.assert_found("receipt", "names a path of the machine that made it")

    def test_a_missing_receipt_and_a_missing_path(self) -> None:
        self.claims = CLAIMS.replace("/cells/0/rate", "/cells/1/rate")
        self.assert_found("receipt", "has no /cells/1/rate")
        self.claims = CLAIMS.replace("bench/b.json", "bench/c.json")
        self.assert_found("receipt", "bench/c.json")

    def test_a_requirement_that_is_not_met(self) -> None:
        self.b["equal"] = False
        self.assert_found("receipt", "needs bench/b.json/equal")
        self.b["equal"] = True
        self.claims = CLAIMS.replace('path = "/equal", is = true', 'path = "/bytes", at_most = 98000000')
        self.assertEqual(self.check()[0], 0)
        self.b["bytes"] += 1
        self.assert_found("receipt", "needs bench/b.json/bytes <= 98000000")

    def test_a_claim_without_scope_and_no_claim_at_all(self) -> None:
        self.claims = CLAIMS.replace('scope = "one file"\n', "")
        self.assert_found("figure", "scope")
        self.claims, self.readme = "", "# a project\n"
        self.assert_found("figure", "no claim")

    def test_a_shallow_clone_says_what_it_cannot_know(self) -> None:
        self.write()
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "second")
        shallow = self.root.parent / "shallow"
        self.git("clone", "-q", "--depth", "1", f"file://{self.root}", str(shallow))
        status, output = self.check(root=shallow)
        self.assertEqual(status, 0, output)
        self.assertIn("not checked: the clone is shallow", output)
        self.assertIn("2 commits not looked up", output)
        self.assertEqual(self.check("--history", root=shallow)[0], 1)


if __name__ == "__main__":
    unittest.main()
