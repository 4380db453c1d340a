"""Script of the plan: compares haulier bench with wrk, ab and h2load on one server.

    generators.py kept|fresh|http2 [times]    `times`: generators that record latencies at a cost do so

Rounds are interleaved, so that drift affects all generators. CPU time is that of the generator's process. If the server's
core was the limit, the rates must agree within 3 %; if the generator's core was, a cheaper generator is a faster one, and
rates need not agree. Reads and writes JSON.
"""

import collections
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

CONNECTIONS = 64
HTTP2_CONNECTIONS = 8
STREAMS = 10  # of each connection
ROUNDS, SECONDS = 7, 3
AGREES = 0.03  # largest difference of rates that agree
SATURATED = 0.95  # least share of a core that is the limit
FREE = 0.9  # largest share of a core that is not
PAUSE = 0.3  # s for the server to finish the requests of the generator before

# Requests, requests a second, and latency at the median and the 99th percentile, µs, or None.
Figures = collections.namedtuple("Figures", "requests rate p50 p99", defaults=(None, None))


def figures_of_wrk(text):
    """The figures in wrk's text."""
    count = int(re.search(r"(\d+) requests in", text).group(1))
    units = {"us": 1.0, "ms": 1e3, "s": 1e6}
    times = {
        share: float(value) * units[unit] for share, value, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)\b", text)
    }
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    return Figures(count, rate, times.get("50"), times.get("99"))


def figures_of_ab(text, percentiles=""):
    """The figures in ab's text; `percentiles` is the table that it writes for -e."""
    count = int(re.search(r"Complete requests:\s+(\d+)", text).group(1))
    rate = float(re.search(r"Requests per second:\s+([\d.]+)", text).group(1))
    times = {share: 1e3 * float(value) for share, value in re.findall(r"^(\d+),([\d.]+)$", percentiles, re.M)}
    return Figures(count, rate, times.get("50"), times.get("99"))


def figures_of_h2load(text, log=""):
    """The figures in h2load's text; `log` has a line for each request, which ends in its time in µs."""
    count = int(re.search(r"(\d+) succeeded", text).group(1))
    rate = float(re.search(r"([\d.]+) req/s", text).group(1))
    times = sorted(int(line.split()[-1]) for line in log.splitlines())
    at = [times[int(share * (len(times) - 1))] for share in (0.5, 0.99)] if times else []
    return Figures(count, rate, *at)


def figures_of_haulier(text):
    """The figures in the JSON document of a run."""
    total = json.loads(text)["points"][0]["total"]
    times = dict(total["latency"]["percentiles"])
    return Figures(total["requests"], total["requests_per_second"], times[50.0], times[99.0])


def generators(haulier, url, seconds, way, with_times, place):
    """Name, command and reader of each installed generator. `place` is a directory for their files."""
    count = "100000000"
    connections = str(HTTP2_CONNECTIONS if way == "http2" else CONNECTIONS)
    document, table, log = f"{place}/run.json", f"{place}/table.csv", f"{place}/requests.log"
    ours = [haulier, "bench", "-q", "-d", "-t", str(seconds), "-c", connections, "--warmup", "0", "--threads", "1"]
    ours = [*ours, "--json", document]
    as_ab = ["-q", "-t", str(seconds), "-n", count, "-c", connections, "-e", table]
    as_h2load = ["-t1", f"-c{connections}", f"-D{seconds}", *([f"--log-file={log}"] if with_times else [])]

    def of_ab(text):
        return figures_of_ab(text, taken(table))

    def of_haulier(_):
        return figures_of_haulier(taken(document))

    def of_h2load(text):
        return figures_of_h2load(text, taken(log))

    found = {}
    if way == "fresh":
        found["haulier"] = ([*ours, "--no-keepalive", url], of_haulier)
        found["ab"] = (["ab", "-r", *as_ab, url], of_ab)
        found["haulier --ab"] = ([haulier, "bench", "--ab", "-r", *as_ab, url], of_ab)
    elif way == "http2":
        streams = str(STREAMS)
        found["haulier"] = ([*ours, "--http", "2", "--streams", streams, url], of_haulier)
        found["h2load"] = (["h2load", f"-m{streams}", *as_h2load, url], of_h2load)
    else:
        found["haulier"] = ([*ours, url], of_haulier)
        found["wrk"] = (["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", url], figures_of_wrk)
        found["ab"] = (["ab", "-k", *as_ab, url], of_ab)
        found["haulier --ab -k"] = ([haulier, "bench", "--ab", "-k", *as_ab, url], of_ab)
        found["h2load"] = (["h2load", "--h1", *as_h2load, url], of_h2load)
    if with_times:
        found["haulier again"] = found["haulier"]  # shows the differences by chance
    return {name: one for name, one in found.items() if name.startswith("haulier") or shutil.which(one[0][0])}


def taken(path):
    """Content of a file, which is removed; empty if there is none."""
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        text = file.read()
    os.remove(path)
    return text


def busy(cores):
    """For each core: ticks of work, and all ticks, since the machine started."""
    with open("/proc/stat") as stat:
        lines = {words[0]: [int(word) for word in words[1:9]] for words in map(str.split, stat) if words[0][:3] == "cpu"}
    ticks = [lines[f"cpu{core}"] for core in cores]
    return [(sum(core) - core[3] - core[4], sum(core)) for core in ticks]


def run(command, cores):
    """Output of a program, its user and system time, s, and the busy share of each core."""
    with tempfile.TemporaryFile() as out:
        before = busy(cores)
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        after = busy(cores)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        shares = [(now[0] - then[0]) / max(1, now[1] - then[1]) for then, now in zip(before, after)]
        return out.read().decode(), usage.ru_utime, usage.ru_stime, shares


def measure(commands, rounds, cores):
    """Figures and costs of every generator, each a list over the rounds. `cores`: the server's and the generator's."""
    rows = {}
    for number in range(rounds):
        names = list(commands)
        for name in names if number % 2 == 0 else reversed(names):
            command, reader = commands[name]
            time.sleep(PAUSE)
            text, user, system, shares = run(command, cores)
            figures = reader(text)
            row = rows.setdefault(name, collections.defaultdict(list))
            row["rate"].append(figures.rate)
            row["cpu"].append((user + system) / figures.requests * 1e6)
            row["user"].append(user / figures.requests * 1e6)
            row["cores"].append(shares)
            for which in ("p50", "p99"):
                row[which] += [time for time in [getattr(figures, which)] if time is not None]
    return rows


def shares(row):
    """The median busy share of each core."""
    return [statistics.median(core) for core in zip(*row["cores"])]


def median(row, key):
    return statistics.median(row[key]) if row.get(key) else None


def table(rows):
    """A line for each generator: medians over the rounds, and the cost of haulier as a multiple of its cost."""
    ours = median(rows["haulier"], "cpu")
    lines = []
    for name, row in rows.items():
        cpu = median(row, "cpu")
        cells = [median(row, "rate"), median(row, "p50"), median(row, "p99"), *shares(row), cpu, median(row, "user"), ours / cpu]
        lines.append({"name": name, "cells": cells})
    columns = [
        {"name": "requests/s"},
        {"name": "time, median", "unit": "time"},
        {"name": "time, p99", "unit": "time"},
        {"name": "server's core", "unit": "share"},
        {"name": "generator's core", "unit": "share"},
        {"name": "CPU/request", "unit": "time", "best": "least"},
        {"name": "user mode", "unit": "time"},
        {"name": "haulier : it"},
    ]
    return {"columns": columns, "rows": lines}


def limit(rows):
    """The core that was the limit: `server` if it was for every generator, `generator` if it was for one."""
    found = [shares(row) for row in rows.values()]
    if any(own > FREE for _, own in found):
        return "generator"
    return "server" if all(server >= SATURATED for server, _ in found) else "neither"


def difference(rows, name, key):
    """Difference of haulier's figure from that of a generator, as a fraction: the median over the rounds."""
    return statistics.median(ours / its for ours, its in zip(rows["haulier"][key], rows[name][key])) - 1


def agreement(rows):
    """Sentences on the agreement of all generators."""
    which = limit(rows)
    if which == "generator":
        return ["the generator was the limit: rates show its cost, and need not agree"]
    if which == "neither":
        return ["neither core was busy throughout: something else was the limit"]
    found = ["the server was the limit"]
    for name, row in rows.items():
        if name == "haulier":
            continue
        rate = difference(rows, name, "rate")
        words = "agrees" if abs(rate) <= AGREES else "DOES NOT AGREE"
        times = [f"{key} {difference(rows, name, key):+.1%}" for key in ("p50", "p99") if row.get(key)]
        found.append(f"{name} {words} (rate {rate:+.1%}{''.join(', ' + one for one in times)})")
    return found


def main():
    asked, way, with_times = json.load(sys.stdin), sys.argv[1], sys.argv[2:] == ["times"]
    rounds, seconds = (1, 1) if asked["quick"] else (ROUNDS, SECONDS)
    url = asked["servers"][0]["url"] + "/"
    commands = generators(asked["haulier"], url, seconds, way, with_times, os.getcwd())
    rows = measure(commands, rounds, [asked["server_cores"][0], asked["client_cores"][0]])
    json.dump({"sentences": agreement(rows), "tables": [table(rows)]}, sys.stdout)


if __name__ == "__main__":
    main()
