#!/usr/bin/env python3
"""scripts/test.sh is the judge, so it is judged here: planted stages that pass, fail in every way, or are not run."""
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGES = """
declare -A STAGE_ABOUT=([good]=a [absent]=b [bad]=c [halfway]=d [unset]=e [piped]=f [hanging]=g [killed]=h)
STAGES=(good absent)
QUICK_STAGES=(good)
stage_good() { echo "COUNT: 3 things"; }
stage_absent() { echo "NOT RUN: no network"; return 77; }
stage_bad() { return 1; }
stage_halfway() { false; echo "COUNT: 1"; }
stage_unset() { echo "$nowhere"; }
stage_piped() { false | cat; }
stage_hanging() { sleep 60; }
stage_killed() { kill -SEGV $$; }
"""


class TestRunner(unittest.TestCase):
    def run_stages(self, *arguments: str) -> tuple[int, list[str], str]:
        with tempfile.TemporaryDirectory(prefix="test_runner_") as folder:
            stages = Path(folder) / "stages.sh"
            stages.write_text(STAGES, encoding="utf-8")
            environment = {**os.environ, "NIBBLE_TEST_STAGES": str(stages), "NIBBLE_TEST_LOGS": folder, "STAGE_LIMIT": "2"}
            result = subprocess.run(["bash", str(ROOT / "scripts/test.sh"), *arguments], env=environment, stdin=subprocess.DEVNULL,
                                    capture_output=True, text=True, check=False)
        return result.returncode, result.stdout.strip().splitlines(), result.stderr

    def test_passed_and_not_run_are_counted_apart(self) -> None:
        status, lines, _ = self.run_stages()
        self.assertEqual(status, 0)
        self.assertEqual(lines[-1], "1 passed, 0 failed, 1 skipped")
        self.assertTrue(any("good" in line and "3 things" in line for line in lines))
        self.assertTrue(any(line.startswith("NOT RUN") and "no network" in line for line in lines))

    def test_every_way_to_fail_fails(self) -> None:
        for stage in ("bad", "halfway", "unset", "piped", "hanging"):
            status, lines, _ = self.run_stages("--stage", "good", "--stage", stage)
            self.assertEqual((status, lines[-1]), (1, "1 passed, 1 failed, 0 skipped"), stage)

    def test_a_signal_is_called_by_its_name(self) -> None:
        status, lines, _ = self.run_stages("--stage", "killed")
        self.assertEqual(status, 1)
        self.assertTrue(any("ended by signal SIGSEGV" in line for line in lines), lines)

    def test_an_unknown_stage_is_refused(self) -> None:
        status, lines, err = self.run_stages("--stage", "nothing")
        self.assertEqual((status, lines), (2, []))
        self.assertIn("there is no stage 'nothing'", err)
        self.assertIn("stages: good absent", err)

    def test_every_script_calls_wrong_usage_by_its_name(self) -> None:
        for script, arguments, words in (("test.sh", ["--stage"], "--stage needs a name"), ("test.sh", ["--slow"], "'--slow' is not expected"),
                                         ("demo.sh", ["--model"], "--model needs a name"), ("demo.sh", ["--fast"], "there is no flag --fast"),
                                         ("install_deps.sh", ["all"], "'all' is not expected"), ("fetch_model.sh", [], "no name given"),
                                         ("fetch_model.sh", ["nothing"], "nothing")):
            result = subprocess.run(["bash", str(ROOT / "scripts" / script), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                                    text=True, check=False)
            self.assertEqual((result.returncode, result.stdout), (2, ""), (script, arguments))
            self.assertIn(words, result.stderr)

    def test_quick_runs_its_list(self) -> None:
        _, lines, _ = self.run_stages("--quick")
        self.assertEqual(lines[-1], "1 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
