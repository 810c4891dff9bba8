#!/usr/bin/env python3
"""What Chromium makes of a page of `nibble report`, at the width of a screen and of a phone.

usage: report_browser_test.py PAGE.html

Held: it names no other file, nothing is complained about, the page is no wider than its window, every picture is
there, and every text of a picture lies inside it and beside the others. The same is tried on a page with one fault of each
kind, which must be found. Speaks WebDriver with chromedriver; only Python's standard library is used.
"""
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Iterator

WIDTHS = {"a screen": 1280, "a phone": 400}

# What is wrong with the page, as lines of words.
FAULTS = """
const faults = [];
const inside = (a, b) => a.left >= b.left - 0.5 && a.right <= b.right + 0.5 && a.top >= b.top - 0.5 && a.bottom <= b.bottom + 0.5;
const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5;
for (const e of document.querySelectorAll('[src], [href]')) faults.push('names the file ' + (e.getAttribute('src') ?? e.getAttribute('href')));
if (document.documentElement.outerHTML.includes('url(')) faults.push('names a file in a style');
const root = document.documentElement;
if (root.scrollWidth > window.innerWidth) faults.push('is ' + root.scrollWidth + ' wide in a window of ' + window.innerWidth);
const pictures = [...document.querySelectorAll('svg')];
if (pictures.length === 0) faults.push('has no picture');
for (const svg of pictures) {
  const frame = svg.getBoundingClientRect();
  const shapes = [...svg.querySelectorAll('rect')].filter(r => r.getBoundingClientRect().width > 0);
  if (frame.width < 50 || frame.height < 10 || shapes.length === 0) faults.push('shows nothing in a picture');
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  for (const [text, box] of texts) if (!inside(box, frame)) faults.push("cuts off '" + text + "'");
  texts.forEach(([text, box], i) => {
    for (const [other, its] of texts.slice(i + 1)) if (meet(box, its)) faults.push("writes '" + text + "' over '" + other + "'");
  });
}
return faults;
"""

BROKEN = """<!doctype html><html><head><title>broken</title></head><body><img src="nowhere.png" style="background: url(there.png)">
<p style="width: 3000px">wide</p><svg viewBox="0 0 200 40" width="200"><rect x="0" y="0" width="9" height="9"/>
<text x="10" y="30">two</text><text x="14" y="30">texts</text><text x="-20" y="12">cut</text></svg>
<svg viewBox="0 0 200 40" width="200"></svg></body></html>"""
FOUND_IN_BROKEN = ["names the file nowhere.png", "names a file in a style", "complains: .*nowhere.png", "is 30.. wide", "cuts off 'cut'",
                   "writes 'two' over 'texts'", "shows nothing"]


def request(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    call = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(call, timeout=60) as answer:
        return json.load(answer)["value"]


@contextmanager
def browser() -> Iterator[str]:
    """The address of a session of its own."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                request("GET", base + "/status")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        wanted = {"goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]},
                  "goog:loggingPrefs": {"browser": "ALL"}}
        session = request("POST", base + "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
        yield f"{base}/session/{session}"
        request("DELETE", f"{base}/session/{session}")
    finally:
        driver.terminate()
        driver.wait(10)


def faults(session: str, page: Path, width: int) -> list[str]:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    request("POST", f"{session}/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})
    request("POST", f"{session}/url", {"url": page.resolve().as_uri()})
    found = request("POST", f"{session}/execute/sync", {"script": FAULTS, "args": []})
    return found + ["complains: " + entry["message"] for entry in request("POST", f"{session}/se/log", {"type": "browser"})]


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    failures = 0
    with browser() as session, tempfile.TemporaryDirectory() as folder:
        for name, width in WIDTHS.items():
            for fault in faults(session, Path(sys.argv[1]), width):
                print(f"on {name} the page {fault}")
                failures += 1
        broken = Path(folder) / "broken.html"
        broken.write_text(BROKEN, encoding="utf-8")
        found = faults(session, broken, WIDTHS["a screen"])
        for fault in FOUND_IN_BROKEN:
            if not any(re.search(fault, f) for f in found):
                print(f"not noticed in the broken page: {fault}; found: {found}")
                failures += 1
    print(f"{sys.argv[1]}: {failures} faults at {' and '.join(map(str, WIDTHS.values()))} pixels; of a broken page all noticed"
          if failures == 0 else f"{failures} faults")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
