#!/usr/bin/env python3
"""Download programs of today: seconds, and how long each runs on after its last byte. Reads and writes JSON."""

import hashlib
import itertools
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROUNDS = 3
PATIENCE = 60
MUCH_PATIENCE = 150  # on a link where one connection needs 95
SOON = 0.05  # seconds after the last byte
MEMORY = "/dev/shm"  # where files go while ends are measured: a disk that is behind holds up now this program, now that
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
    """(seconds, end, CPU seconds, what is wrong); what it writes to standard output is the file if it names none.

    The CPU time is that of all children, so nothing may run beside.
    """
    if os.path.exists(out):
        os.remove(out)
    before, begun = children(), time.monotonic()
    with open(out if out not in command else os.devnull, "wb") as stdout:
        try:
            # A pipe ends with the program; without one its end is only looked for, every 50 ms.
            pipes = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE}
            done = subprocess.run(command, **pipes, timeout=patience, check=False)
        except subprocess.TimeoutExpired:
            return None, None, None, "hangs"
    ended, spent = time.monotonic(), children() - before
    if done.returncode != 0:
        return None, None, None, f"exit {done.returncode}"
    if not os.path.exists(out):
        return None, None, None, "no file"
    with open(out, "rb") as file:
        right = hashlib.file_digest(file, "sha256").hexdigest() == digest
    return ended - begun, ended, spent, None if right else "wrong file"


def children():
    """CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds(command, out, digest, rounds, patience=PATIENCE):
    """(microseconds, CPU microseconds for a GB) as medians of the rounds; what is wrong, twice, if something is."""
    times, spent = [], []
    for _ in range(rounds):
        took, _, cpu, wrong = run(command, out, digest, patience)
        if wrong:
            return wrong, wrong
        times.append(1e6 * took)
        spent.append(1e6 * cpu * 1e9 / os.path.getsize(out))
    return statistics.median(times), statistics.median(spent)


def tail(command_for, server, out, digest):
    """Microseconds that the program ran on after its last byte, or what is wrong."""
    relay = Relay(server["port"])
    try:
        command = command_for(f"http://127.0.0.1:{relay.port}/file.bin", out)
        _, ended, _, wrong = run(command, out, digest)
        return wrong or 1e6 * max(0.0, ended - relay.last)
    finally:
        relay.close()


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
        "note": "haulier get has no setting for the buffer of 2005; -x 16 stands in its place",
    }


def verdict(rows):
    """How `haulier get` ends, everywhere."""
    ours = [cell for row in rows for cell in row["cells"]]
    words = [cell for cell in ours if isinstance(cell, str)]
    latest = max((cell for cell in ours if not isinstance(cell, str)), default=0.0)
    holds = "holds" if not words and latest <= 1e6 * SOON else "does not hold"
    failed = f", {len(words)} of {len(ours)} failed ({', '.join(words)})" if words else ""
    return (
        f"haulier get: the latest of {len(ours)} downloads ended {latest / 1000:.1f} ms after its last byte{failed} "
        f"(at most {1000 * SOON:.0f}): {holds}"
    )


class InBackground(threading.Thread):
    """curl on the slow link, which costs nearly nothing and takes a minute and a half, while others are measured."""

    def __init__(self, command):
        super().__init__(daemon=True)
        self.command, self.took = command, None

    def run(self):
        begun = time.monotonic()
        done = subprocess.run(self.command, stdin=subprocess.DEVNULL, capture_output=True, timeout=MUCH_PATIENCE, check=False)
        self.took = 1e6 * (time.monotonic() - begun) if done.returncode == 0 else f"exit {done.returncode}"


def gain(found, curl, server, out, digest, rounds):
    """What further connections gain where each is limited: a sentence, and a table of the two programs."""
    ours, _ = seconds(found["haulier get -x 16"](f"{server['url']}/file.bin", out), out, digest, rounds, MUCH_PATIENCE)
    curl.join(MUCH_PATIENCE)
    times = {"haulier get -x 16": ours, "curl": curl.took or "hangs"}
    made = {
        "title": "Time for 100 MB where further connections must help",
        "columns": [{"name": server["about"], "unit": "time", "best": "least"}],
        "rows": [{"name": name, "cells": [took]} for name, took in times.items()],
        "note": f"haulier get: median of {rounds}",
    }
    if any(isinstance(took, str) for took in times.values()):
        return f"haulier get -x 16 and curl on the slow link: {', '.join(map(str, times.values()))}: does not hold", made
    times_curl = times["curl"] / ours
    holds = "holds" if times_curl >= GAIN else "does not hold"
    return f"haulier get -x 16: {times_curl:.1f} × curl on {server['about']} (at least {GAIN}): {holds}", made


def against_curl(times, spent):
    """No slower than curl, and CPU seconds a GB, on the servers that are not limited."""
    row = {row["name"]: row["cells"] for row in times["rows"]}
    ours, curl = row["haulier get"][:FREE], row.get("curl", [])[:FREE]
    pairs = [(one, other) for one, other in zip(ours, curl) if not isinstance(one, str) and not isinstance(other, str)]
    if pairs:
        ratio = statistics.geometric_mean(one / other for one, other in pairs)
        holds = "holds" if ratio <= 1.0 else "does not hold"
        yield f"haulier get: {ratio:.2f} × the time of curl to a file, on free links (at most 1): {holds}"
    cpu = [cell for row in spent["rows"] if row["name"] == "haulier get" for cell in row["cells"] if not isinstance(cell, str)]
    if cpu:
        most = max(cpu) / 1e6
        yield f"haulier get: {most:.2f} s of CPU a GB (at most 0.75): {'holds' if most <= 0.75 else 'does not hold'}"


FREE = 4  # servers on a free link come first


def table(title, servers, found, figures):
    """A table of what was found, {(program, server): figure}."""
    rows = [{"name": name, "cells": [figures[name, server["name"]] for server in servers]} for name in found]
    columns = [{"name": server["about"], "unit": "time", "best": "least"} for server in servers]
    return {"title": title, "columns": columns, "rows": rows}


def main():
    asked = json.load(sys.stdin)
    root = f"{asked['place']}/docroot/file.bin"
    with tempfile.TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as place:
        json.dump(measure(asked, root, f"{os.getcwd()}/out.bin", f"{place}/out.bin"), sys.stdout)


def measure(asked, root, out, swift):
    """What the programs do with the file `root`, which they write to `out`, on a disk, and to `swift`, in memory."""
    with open(root, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    everything = programs(asked["haulier"])
    found = {name: command for name, command in everything.items() if shutil.which(command("", "")[0])}
    absent = [name for name in everything if name not in found]
    rounds = 1 if asked["quick"] else ROUNDS
    slow = next((server for server in asked["servers"] if server["name"] == "slow"), None)
    servers = [server for server in asked["servers"] if server["name"] != "slow"]
    free = [server for server in servers if server["name"] != "limited"]

    times, spent, last = {}, {}, {}
    for name, command in found.items():
        run(command(f"{free[0]['url']}/file.bin", out), out, digest)  # whatever it needs has been read from the disk then
        for server in servers:
            key = name, server["name"]
            # A limit says the same each time.
            turns = rounds if server in free else 1
            times[key], spent[key] = seconds(command(f"{server['url']}/file.bin", out), out, digest, turns)
            print("seconds", *key, times[key], file=sys.stderr, flush=True)
    curl = None
    if slow and "curl" in found and not asked["quick"]:
        curl = InBackground(found["curl"](f"{slow['url']}/file.bin", f"{out}.slow"))
        curl.start()
    for name, command in found.items():
        for server in free:
            key = name, server["name"]
            last[key] = tail(command, server, swift, digest)
            print("after the last byte", *key, last[key], file=sys.stderr, flush=True)

    whole = table(f"Time for 100 MB, median of {rounds}", servers, found, times)
    cpu = table("CPU time for a GB, to a file", free, found, spent)
    tails = table("After the last byte", free, found, last)
    tails["note"] = "measured through a relay that notes the time of the last byte sent to the program; files in memory"
    names = list(OPTIONS)
    every = [chosen for count in range(len(names) + 1) for chosen in itertools.combinations(names, count)]
    ours = cells(asked["haulier"], free, swift, digest, every[:1] if asked["quick"] else every)
    rows = [row for row in tails["rows"] if row["name"].startswith("haulier")] + ours["rows"]
    sentences = [verdict(rows), *against_curl(whole, cpu)]
    tables = [whole, cpu, tails, ours]
    if curl:
        sentence, made = gain(found, curl, slow, out, digest, rounds)
        sentences.append(sentence)
        tables.append(made)
    sentences += [f"not installed: {name}" for name in absent]
    return {"sentences": sentences, "tables": tables}


if __name__ == "__main__":
    main()
