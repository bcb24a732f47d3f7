"""Waits for the service.

  follow.py URL ready           until it is ready
  follow.py URL LSN SECONDS     until bronze, silver and gold show that LSN; tells how long that took from SECONDS since 1970
"""
import json
import sys
import time
import urllib.error
import urllib.request

DEADLINE_S = 60


def number(lsn):
    high, low = (lsn or "0/0").split("/")
    return (int(high, 16) << 32) | int(low, 16)


def status(url):
    try:
        with urllib.request.urlopen(url + "/status", timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def wait(url, reached):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        now = status(url)
        if now and reached(now):
            return
        time.sleep(0.02)
    sys.exit(f"not reached within {DEADLINE_S} s; the service says {json.dumps(status(url))}")


def main():
    url, goal = sys.argv[1:3]
    if goal == "ready":
        wait(url, lambda s: s["ready"])
        return
    lsn, start, parts = number(goal), float(sys.argv[3]), []
    layer = lambda s, name: [t for t in s["dynamic_tables"] if t["name"].startswith(name + ".")]
    wait(url, lambda s: number(s["source"]["published_lsn"]) >= lsn)
    parts.append(f"bronze after {time.time() - start:.2f} s")
    for name in ("silver", "gold"):
        wait(url, lambda s: layer(s, name) and all(number(t["data_lsn"]) >= lsn for t in layer(s, name)))
        parts.append(f"{name} after {time.time() - start:.2f} s")
    print("  → " + ", ".join(parts))


main()
