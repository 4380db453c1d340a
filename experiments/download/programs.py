#!/usr/bin/env python3
"""Download programs of today: seconds, and how long each runs on after its last byte. Reads and writes JSON."""

import hashlib
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

ROUNDS = 3
PATIENCE = 60
MUCH_PATIENCE = 150  # on a link where one connection needs 95
SOON = 0.05  # seconds after the last byte
GAIN = 10  # times curl, with 16 connections where each is limited
# What the eight sets of options of 2005 are for `haulier get`: the buffer is its own affair, so its connections instead.
OPTIONS = {
    "Connection: close": ["-H", "Connection: close"],
    "time-out 0.5 s": ["--stall-timeout", "500ms"],
    "-x 16": ["-x", "16"],
}
COPY = '$in = fopen($argv[1], "r"); exit(stream_copy_to_stream($in, fopen($argv[2], "w")) > 0 ? 0 : 1);'
EXT_CURL = (
    "$c = curl_init($argv[1]); curl_setopt_array($c, [CURLOPT_FILE => fopen($argv[2], 'w'), CURLOPT_FAILONERROR => true]);"
    "exit(curl_exec($c) ? 0 : 1);"
)


def programs(haulier):
    return {
        "haulier get": lambda url, out: [haulier, "get", "-q", url, "-o", out],
        "haulier get -x 16": lambda url, out: [haulier, "get", "-q", "-x", "16", url, "-o", out],
        "curl": lambda url, out: ["curl", "-sS", "--fail", url, "-o", out],
        "wget": lambda url, out: ["wget", "-q", url, "-O", out],
        "wget2": lambda url, out: ["wget2", "-q", url, "-O", out],
        "aria2c": lambda url, out: ["aria2c", "-q", "-d", "/", "-o", out, url],
        "aria2c -x16": lambda url, out: ["aria2c", "-q", "-x16", "-s16", "-k1M", "-d", "/", "-o", out, url],
        "axel -n16": lambda url, out: ["axel", "-q", "-n", "16", url, "-o", out],
        "PHP, http:// stream": lambda url, out: ["php", "-r", COPY, url, out],
        "PHP, ext/curl": lambda url, out: ["php", "-r", EXT_CURL, url, out],
    }


class Relay:
    """Passes connections on to a server, and knows when the last byte went to the client."""

    def __init__(self, port):
        self.to, self.last = port, 0.0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            threading.Thread(target=self.carry, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.carry, args=(server, client, True), daemon=True).start()

    def carry(self, source, sink, is_answer):
        buffer = memoryview(bytearray(1 << 20))
        try:
            while size := source.recv_into(buffer):
                sink.sendall(buffer[:size])
                if is_answer:
                    self.last = time.monotonic()
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


def run(command, out, digest, patience=PATIENCE):
    """(seconds, end, what is wrong); what it writes to standard output is the file if it names none."""
    if os.path.exists(out):
        os.remove(out)
    begun = time.monotonic()
    with open(out if out not in command else os.devnull, "wb") as stdout:
        try:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.DEVNULL}
            done = subprocess.run(command, **pipes, timeout=patience, check=False)
        except subprocess.TimeoutExpired:
            return None, None, "hangs"
    ended = time.monotonic()
    if done.returncode != 0:
        return None, None, f"exit {done.returncode}"
    with open(out, "rb") as file:
        right = hashlib.file_digest(file, "sha256").hexdigest() == digest
    return ended - begun, ended, None if right else "wrong file"


def seconds(command, out, digest, rounds, patience=PATIENCE):
    """Microseconds as the median of the rounds, or what is wrong."""
    times = []
    for _ in range(rounds):
        took, _, wrong = run(command, out, digest, patience)
        if wrong:
            return wrong
        times.append(1e6 * took)
    return statistics.median(times)


def tail(command_for, server, out, digest):
    """Microseconds that the program ran on after its last byte, or what is wrong."""
    relay = Relay(server["port"])
    try:
        command = command_for(f"http://127.0.0.1:{relay.port}/file.bin", out)
        _, ended, wrong = run(command, out, digest)
        return wrong or 1e6 * max(0.0, ended - relay.last)
    finally:
        relay.close()


def table(title, servers, found, measure):
    rows = []
    for name, command in found.items():
        cells = []
        for server in servers:
            cells.append(measure(command, server))
            print(title, name, server["about"], cells[-1], file=sys.stderr, flush=True)
        rows.append({"name": name, "cells": cells})
    columns = [{"name": server["about"], "unit": "time", "best": "least"} for server in servers]
    return {"title": title, "columns": columns, "rows": rows}


def cells(haulier, servers, out, digest, sets):
    """`haulier get` where the clients of 2005 waited: every set of options, to a file and to standard output."""
    places = {"to a file": out, "to standard output": "-"}
    columns = [(server, words) for server in servers for words in places]
    rows = []
    for chosen in sets:
        options = [word for name in chosen for word in OPTIONS[name]]
        row = []
        for server, words in columns:
            command = [haulier, "get", "-q", *options, "-o", places[words]]
            row.append(tail(lambda url, _, command=command: [*command, url], server, out, digest))
        name = " + ".join(chosen) or "none"
        rows.append({"name": name, "cells": row})
        print("haulier get", name, row, file=sys.stderr, flush=True)
    return {
        "title": "haulier get in the cells of 2005: after the last byte",
        "columns": [{"name": f"{server['about']}, {words}", "unit": "time", "best": "least"} for server, words in columns],
        "rows": rows,
        "note": "the buffer of 2005 is nothing that haulier get can be told; -x 16 stands in its place",
    }


def verdict(rows):
    """How `haulier get` ends, everywhere."""
    ours = [cell for row in rows for cell in row["cells"]]
    good = sum(isinstance(cell, float) and cell <= 1e6 * SOON for cell in ours)
    return f"haulier get: {good} of {len(ours)} downloads end within {1000 * SOON:.0f} ms of the last byte"


def gain(found, server, out, digest):
    """What further connections gain where each is limited: a sentence, and a table of the two programs."""
    names = ["haulier get -x 16", "curl"]
    times = {name: seconds(found[name], out, digest, 1, MUCH_PATIENCE) for name in names}
    made = {
        "title": "Seconds for 100 MB where further connections must help",
        "columns": [{"name": server["about"], "unit": "time", "best": "least"}],
        "rows": [{"name": name, "cells": [times[name]]} for name in names],
    }
    if any(isinstance(took, str) for took in times.values()):
        return f"haulier get -x 16 and curl on the slow link: {', '.join(map(str, times.values()))}", made
    times_curl = times["curl"] / times["haulier get -x 16"]
    words = "as wanted" if times_curl >= GAIN else f"WANTED ARE {GAIN} ×"
    return f"haulier get -x 16: {times_curl:.1f} × curl on {server['about']} ({words})", made


def main():
    asked = json.load(sys.stdin)
    root, out = f"{asked['place']}/docroot/file.bin", f"{os.getcwd()}/out.bin"
    with open(root, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    everything = programs(asked["haulier"])
    found = {name: command for name, command in everything.items() if shutil.which(command("", "")[0])}
    absent = [name for name in everything if name not in found]
    rounds = 1 if asked["quick"] else ROUNDS
    servers = [server for server in asked["servers"] if server["name"] != "slow"]

    def whole(command, server):
        return seconds(command(f"{server['url']}/file.bin", out), out, digest, rounds)

    def after(command, server):
        return tail(command, server, out, digest)

    kept = [server for server in servers if server["name"] != "limited"]
    times = table(f"Seconds for 100 MB, median of {rounds}", servers, found, whole)
    tails = table("After the last byte", kept, found, after)
    tails["note"] = "measured through a relay that notes when the last byte went to the program"
    names = list(OPTIONS)
    every = [chosen for count in range(len(names) + 1) for chosen in itertools.combinations(names, count)]
    ours = cells(asked["haulier"], kept, out, digest, every[:1] if asked["quick"] else every)
    rows = [row for row in tails["rows"] if row["name"].startswith("haulier")] + ours["rows"]
    sentences = [verdict(rows)] + [f"not installed: {name}" for name in absent]
    tables = [times, tails, ours]
    slow = [server for server in asked["servers"] if server["name"] == "slow" and not asked["quick"]]
    for server in slow if "curl" in found else []:
        commands = {name: command(f"{server['url']}/file.bin", out) for name, command in found.items()}
        sentence, made = gain(commands, server, out, digest)
        sentences.insert(1, sentence)
        tables.append(made)
    json.dump({"sentences": sentences, "tables": tables}, sys.stdout)


if __name__ == "__main__":
    main()
