#!/usr/bin/env python3
"""The script of a plan: the memory of servers that keep an application booted.

    memory.py PATH N      N requests to each server, 20 at once, and then the memory of its processes

Memory is the proportional size (PSS): what several processes share is divided among them. Reads and writes JSON.
"""

import contextlib
import json
import os
import subprocess
import sys

MOST_BYTES = 130e6  # all processes of PHP, the goal


def processes(roots):
    """pid → name, of the processes that descend from `roots`, and of these."""
    names, parents = {}, {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            text = file.read()
            names[pid] = text[text.index("(") + 1 : text.rindex(")")]
            parents[pid] = int(text[text.rindex(")") + 2 :].split()[1])
    found = set(roots) & names.keys()
    while more := {pid for pid in names if parents[pid] in found and pid not in found}:
        found |= more
    return {pid: names[pid] for pid in found}


def pss(pids):
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def measure(asked, server, path, count):
    """[PSS of PHP's processes, of all processes]; PHP is part of the server where no process is called php*."""
    command = [asked["haulier"], "bench", "-q", "-d", "-c", "20", "-n", count, "--no-keepalive", f"{server['url']}{path}"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"{server['about']}: {ended.stderr or ended.stdout}")
    names = processes(server["pids"])
    php = [pid for pid, name in names.items() if name.startswith("php")]
    return [pss(php) if php else None, pss(names)]


def main():
    asked, (path, count) = json.load(sys.stdin), sys.argv[1:]
    count = "40" if asked["quick"] else count
    rows = [{"name": server["about"], "cells": measure(asked, server, path, count)} for server in asked["servers"]]
    columns = [{"name": "PHP’s processes", "unit": "bytes", "best": "least"}, {"name": "all", "unit": "bytes", "best": "least"}]
    goals = []
    if not asked["quick"] and rows and rows[0]["name"].startswith("haulier"):
        took = rows[0]["cells"][0]
        goals = [{"goal": "PHP’s processes <= 130 MB", "measured": f"{took / 1e6:.0f} MB", "is_reached": took <= MOST_BYTES}]
    json.dump({"tables": [{"columns": columns, "rows": rows}], "goals": goals}, sys.stdout)


if __name__ == "__main__":
    main()
