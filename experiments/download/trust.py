#!/usr/bin/env python3
"""What programs make of a server that cuts, stalls, lies or changes the file. Reads and writes JSON."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import hostile

PATIENCE = 25  # seconds
KINDS = {
    "cut": "cut once",
    "always": "always cut",
    "stall": "stalls",
    "lies": "lies about ranges",
    "changes": "another file meanwhile",
}
RIGHT = {hashlib.sha256(content).hexdigest() for content in hostile.FILES}


def programs(haulier):
    """Each is told to continue what it has, to try again, and to give up after two silent seconds."""
    stall = ["--speed-limit", "1", "--speed-time", "2"]
    again = ["--retry", "3", "--retry-all-errors", "--retry-delay", "0", "-C", "-"]
    wget = ["-q", "-c", "--tries=4", "--waitretry=0", "--read-timeout=2"]
    aria = ["aria2c", "-q", "-m4", "--retry-wait=0", "-t2", "-c"]
    return {
        "haulier get": lambda url, out: [haulier, "get", "-q", "--stall-timeout", "2s", url, "-o", out],
        "haulier get -x 16": lambda url, out: [haulier, "get", "-q", "-x", "16", "--stall-timeout", "2s", url, "-o", out],
        "curl": lambda url, out: ["curl", "-sS", "--fail", *stall, *again, url, "-o", out],
        "wget": lambda url, out: ["wget", *wget, url, "-O", out],
        "wget2": lambda url, out: ["wget2", *wget, url, "-O", out],
        "aria2c": lambda url, out: [*aria, "-d", "/", "-o", out, url],
        "aria2c -x16": lambda url, out: [*aria, "-x16", "-s16", "-k1M", "-d", "/", "-o", out, url],
        "axel -n4": lambda url, out: ["axel", "-q", "-n", "4", "-T", "2", url, "-o", out],
    }


def outcome(command, out):
    """What came of a download, in a word or two."""
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE).returncode
    except subprocess.TimeoutExpired:
        return "hangs"
    if code != 0:
        return f"says so ({code})"
    if not os.path.exists(out):
        return "no file, exit 0"
    with open(out, "rb") as file:
        return "right" if hashlib.file_digest(file, "sha256").hexdigest() in RIGHT else "WRONG FILE"


def main():
    asked = json.load(sys.stdin)
    (server,) = asked["servers"]
    everything = programs(asked["haulier"])
    found = {name: command for name, command in everything.items() if shutil.which(command("", "")[0])}
    rows = []
    for number, (name, command) in enumerate(found.items()):
        cells = []
        for kind in KINDS:
            out = f"{os.getcwd()}/{number}-{kind}.bin"
            cells.append(outcome(command(f"{server['url']}/{kind}/{number}", out), out))
            print(name, kind, cells[-1], file=sys.stderr, flush=True)
        rows.append({"name": name, "cells": cells})
    wrong = [row["name"] for row in rows if "WRONG FILE" in row["cells"]]
    ours = [row for row in rows if row["name"].startswith("haulier")]
    sentences = [
        f"called complete although it is not the server's file: {', '.join(wrong) or 'nobody'}",
        f"haulier get: {sum(cell == 'right' for row in ours for cell in row['cells'])} of {len(ours) * len(KINDS)} right, "
        "the others refused with a reason",
    ]
    columns = [{"name": name} for name in KINDS.values()]
    json.dump({"sentences": sentences, "tables": [{"columns": columns, "rows": rows}]}, sys.stdout)


if __name__ == "__main__":
    main()
