#!/usr/bin/env python3
"""The part of the plan with slow readers: a light page alone, then beside them. Reads and writes JSON."""

import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CONTESTANTS = [
    # name, server of the plan, script
    ("haulier zend_send_file", "haulier", "zend.php"),
    ("haulier X-Sendfile", "haulier", "sendfile.php"),
    ("haulier fpassthru + rule", "haulier-rule", "fpassthru.php"),
    ("haulier fpassthru", "haulier", "fpassthru.php"),
    ("nginx X-Accel-Redirect", "nginx", "accel.php"),
    ("nginx fpassthru", "nginx", "fpassthru.php"),
    ("lighttpd X-Sendfile", "lighttpd", "sendfile.php"),
    ("lighttpd fpassthru", "lighttpd", "fpassthru.php"),
    ("Apache mod_php fpassthru", "apache", "fpassthru.php"),
]
# The promises of haulier's three ways to hand a download off.
HANDED = ["haulier zend_send_file", "haulier X-Sendfile", "haulier fpassthru + rule"]
COLUMNS = [
    {"name": "light page alone, req/s"},
    {"name": "beside the readers", "best": "most"},
    {"name": "kept", "unit": "share", "best": "most"},
    {"name": "p99 alone", "unit": "time"},
    {"name": "p99 beside", "unit": "time", "best": "least"},
    {"name": "downloads complete"},
    {"name": "first byte, median", "unit": "time", "best": "least"},
    {"name": "first byte, last", "unit": "time"},
    {"name": "script busy", "unit": "time", "best": "least"},
    {"name": "memory (PSS)", "unit": "bytes", "best": "least"},
]


def micro(milliseconds):
    return None if milliseconds is None else 1000 * milliseconds


def middle(turns):
    """The median of each figure, of the turns that have it."""
    return [statistics.median(found) if (found := [one for one in figures if one is not None]) else None for figures in zip(*turns)]


class Script:
    """What the plan told us."""

    def __init__(self, asked):
        self.haulier, self.place = asked["haulier"], asked["place"]
        self.servers = {server["name"]: server for server in asked["servers"]}
        quick = asked["quick"]
        self.readers, self.rate, self.limit = (20, 200_000, 8) if quick else (200, 20_000, 35)
        self.seconds, self.turns = (1, 1) if quick else (4, 3)
        self.times = f"{self.place}/docroot/times/log"

    def light(self, server):
        """(requests a second, p99 in µs, bytes of memory) of the page of one line; 0 and nothing of one nobody answers."""
        target = f"{self.place}/light.json"
        watched = [word for pid in server["pids"] for word in ("--pid", str(pid))]
        shape = ["-c", "4", "--duration", f"{self.seconds}s", "--warmup", "500ms"]
        command = [self.haulier, "bench", *shape, *watched, "--json", target, f"{server['url']}/hello.php"]
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if ended.returncode != 0 and "does not answer" in ended.stderr:
            return 0.0, None, None
        ended.check_returncode()
        with open(target) as file:
            total = json.load(file)["points"][0]["total"]
        p99 = dict(map(tuple, total["latency"]["percentiles"]))[99.0]
        return total["requests_per_second"], p99, total["server"]["pss_bytes"]

    def beside(self, server, readers):
        """The light page while there are readers: the median of the turns that ended before they did."""
        turns = []
        while len(turns) < self.turns:
            turn = self.light(server)
            if turns and readers.poll() is not None:
                break
            turns.append(turn)
            if turn[0] == 0:
                break  # nobody answers: once more would take as long and say the same
        return middle(turns)

    def one(self, name, server, script):
        """The row of one contestant."""
        server = self.servers[server]
        before = self.light(server)
        open(self.times, "w").close()
        os.chmod(self.times, 0o666)
        readers = subprocess.Popen(
            [
                *(sys.executable, f"{HERE}/readers.py", str(server["port"]), f"/zds/{script}?timed"),
                *map(str, (self.readers, self.rate, self.limit)),
                f"{self.place}/docroot/500k.png",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            readers.stdout.readline()
            time.sleep(1)  # every script that will get a process has one
            beside, p99, memory = self.beside(server, readers)
            output, _ = readers.communicate()
        finally:
            readers.kill()
        # Before and after, so that a drift of the machine is not taken for the readers' doing.
        answered = [turn for turn in (before, self.light(server)) if turn[0] > 0]
        alone, p99_alone, _ = middle(answered or [before])
        said = json.loads(output.strip().splitlines()[-1])
        with open(self.times) as file:
            busy = [int(line) for line in file]
        complete = f"{said['complete']} of {said['asked']}" + (f", {said['wrong']} wrong" if said["wrong"] else "")
        row = {
            "name": name,
            "cells": [
                *(alone, beside, beside / max(alone, 1), p99_alone, p99, complete),
                *(micro(said["first_ms"]), micro(said["last_first_ms"])),
                *(statistics.fmean(busy) if busy else None, memory),
            ],
        }
        return row, said["complete"] == said["asked"]


def promise(row, all_read):
    """What was promised for a hand-off, with what was measured."""
    kept, busy = row["cells"][2], row["cells"][8] or float("inf")
    tail = (row["cells"][4] or float("inf")) / (row["cells"][3] or 1)
    holds = kept >= 0.95 and tail <= 1.5 and all_read and busy < 5000
    return (
        f"{row['name']}: the light page keeps {100 * kept:.0f} % (at least 95), its p99 is {tail:.2f} × (at most 1.5), "
        f"{'every' if all_read else 'not every'} reader got every byte, a script is busy {busy / 1000:.2f} ms (under 5): "
        f"{'holds' if holds else 'does not hold'}"
    )


def main():
    script = Script(json.load(sys.stdin))
    rows, sentences = [], []
    for name, server, path in CONTESTANTS:
        if server not in script.servers:
            continue
        print(name, file=sys.stderr, flush=True)
        try:
            row, all_read = script.one(name, server, path)
        except (subprocess.SubprocessError, OSError, ValueError, LookupError) as why:
            sentences.append(f"left out: {name} ({why})")  # the others still count
            continue
        rows.append(row)
        if name in HANDED:
            sentences.append(promise(row, all_read))
    note = (
        "Alone: before and after the readers. Beside: the median of three turns while they read. Script busy: the time for "
        f"which the PHP script occupied its process. Readers have at most {script.limit} s."
    )
    table = {"columns": COLUMNS, "rows": rows, "note": note}
    json.dump({"sentences": sentences, "tables": [table]}, sys.stdout)


if __name__ == "__main__":
    main()
