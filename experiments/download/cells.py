#!/usr/bin/env python3
"""The 64 cells of the report of 2005: four PHP clients, eight sets of options, keep-alive on and off; two servers."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"fsockopen": "fsockopen", "socket": "socket", "nonblocking": "non-blocking", "checked": "non-blocking + check"}
WORDS = ["close", "timeout", "buffer"]
OPTIONS = [list(chosen) for count in range(4) for chosen in itertools.combinations(WORDS, count)]
SIZE = 100_000_000
PATIENCE = 20  # seconds; well beyond the idle time-out of 5
CLOSE_WAIT = "08"  # in /proc/net/tcp: the server has closed, the client has not
SPINNING = 1.5  # seconds in that state: nobody who reads takes so long to notice
WAITED = 0.05  # seconds after the last byte


def is_closing(port):
    """Whether a client of this port has been told of the end and goes on."""
    with open("/proc/net/tcp") as file:
        lines = [line.split() for line in file][1:]
    return any(fields[2].endswith(f":{port:04X}") and fields[3] == CLOSE_WAIT for fields in lines)


def hangs(client, port):
    """Waits for a client; whether it had to be ended."""
    deadline, since = time.monotonic() + PATIENCE, None
    while client.poll() is None:
        now = time.monotonic()
        since = (since or now) if is_closing(port) else None
        if now > deadline or (since and now - since > SPINNING):
            client.kill()
            client.wait()
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(0.05)
    return False


def cell(port, kind, options):
    """(words, seconds after the last byte or None)"""
    command = ["php", "-d", "memory_limit=1G", f"{HERE}/client.php", kind, "127.0.0.1", str(port), "/file.bin", *options]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if hangs(client, port):
        return "hangs", None
    said = client.stdout.read()
    if client.returncode != 0 or not said:
        return f"exit {client.returncode}", None
    answer = json.loads(said)
    if answer["bytes"] != SIZE:
        return f"{answer['bytes']:,} bytes only", answer["after"]
    mark = "*" if answer["after"] > answer["seconds"] / 2 else ""
    return f"{SIZE / 1024 / answer['seconds']:,.0f}{mark}", answer["after"]


def table(name, on, off, kinds, options_list):
    """The table of one server, and how many of its cells ended with their last byte."""
    rows, ended = [], 0
    for options in options_list:
        row = []
        for kind in kinds:
            for port in (on, off):
                words, after = cell(port, kind, options)
                ended += after is not None and after <= WAITED
                row.append(words)
                print(name, kind, options, words, file=sys.stderr, flush=True)
        rows.append({"name": " + ".join(options) or "none", "cells": row})
    columns = [{"name": f"{KINDS[kind]}, {state}"} for kind in kinds for state in ("On", "Off")]
    return {"title": name, "columns": columns, "rows": rows}, ended


def main():
    asked = json.load(sys.stdin)
    ports = {server["name"]: server["port"] for server in asked["servers"]}
    kinds, options_list = (["fsockopen", "checked"], [[], ["close"]]) if asked["quick"] else (list(KINDS), OPTIONS)
    tables, sentences = [], []
    for name in ("apache", "haulier"):
        if f"{name}-on" not in ports or f"{name}-off" not in ports:
            continue
        made, ended = table(name, ports[f"{name}-on"], ports[f"{name}-off"], kinds, options_list)
        tables.append(made)
        cells = 2 * len(kinds) * len(options_list)
        sentences.append(f"{name}: {ended} of {cells} cells end within {1000 * WAITED:.0f} ms of the last byte")
    json.dump({"sentences": sentences, "tables": tables}, sys.stdout)


if __name__ == "__main__":
    main()
