"""Figures out of rows, as tables on the terminal, in bench/results/latest.json and in docs/benchmarks.md."""

import json
import os
import platform
import statistics
import subprocess
from typing import NamedTuple

from servers import PEERS
from workloads import WORKLOADS

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results", "latest.json")
PAGE = os.path.join(HERE, "..", "docs", "benchmarks.md")
FOREIGN = 0.15  # CPU seconds a second of somebody else, above which a round is marked


def median(rows, key):
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


def at_once(rows):
    """The numbers of connections that were tried, as tried."""
    return list(dict.fromkeys(row["connections"] for row in rows))


def of(rows, server, connections):
    return [row for row in rows if row["server"] == server and row["connections"] == connections]


def round_ratio(rows, key, one, other, connections):
    """The median over rounds of `one`'s figure divided by `other`'s in the same round."""
    ours, theirs = of(rows, one, connections), of(rows, other, connections)
    ratios = [a[key] / b[key] for a in ours for b in theirs if a["round"] == b["round"] and b.get(key)]
    return statistics.median(ratios) if ratios else None


def best_peer(rows, key, connections):
    """The peer with the lowest figure among those that failed nothing, or None."""
    peers = {row["server"] for row in rows if row["server"] != "haulier"}
    figures = {
        peer: median(of(rows, peer, connections), key)
        for peer in peers
        if not any(row["failed"] for row in of(rows, peer, connections))
    }
    figures = {peer: figure for peer, figure in figures.items() if figure is not None}
    return min(figures, key=figures.get) if figures else None


def against_best(rows, connections):
    peer = best_peer(rows, "cpu_us", connections)
    return (round_ratio(rows, "cpu_us", "haulier", peer, connections), peer) if peer else (None, None)


# Each takes rows and the highest number of connections; (figure, words for the other side).
FIGURES = {
    "cpu against the best peer": against_best,
    "cpu against nginx": lambda rows, top: (round_ratio(rows, "cpu_us", "haulier", "nginx", top), "nginx"),
    "rate against our best": lambda rows, top: (rate_against_best(rows, top), None),
    "failed": lambda rows, _: (sum(row["failed"] for row in rows if row["server"] == "haulier"), None),
    "bytes a connection": lambda rows, top: (median(of(rows, "haulier", top), "per_connection"), None),
    "p99 ms": lambda rows, top: (median(of(rows, "haulier", top), "p99"), None),
    "server us": lambda rows, top: (median(of(rows, "haulier", top), "server_us"), None),
}


def rate_against_best(rows, top):
    rates = [median(of(rows, "haulier", count), "rps") for count in at_once(rows)]
    rates = [rate for rate in rates if rate]
    at_top = median(of(rows, "haulier", top), "rps")
    return at_top / max(rates) if rates and at_top is not None else None


class Verdict(NamedTuple):
    met: bool
    figure: str
    measured: str
    wanted: str


def verdicts(workload, rows):
    """How haulier stands to each goal; none when it took no part."""
    if not any(row["server"] == "haulier" for row in rows):
        return []
    return [verdict(goal, *FIGURES[goal.figure](rows, max(at_once(rows)))) for goal in workload.goals]


def verdict(goal, figure, peer):
    name = f"{goal.figure} ({peer})" if peer and peer not in goal.figure else goal.figure
    wanted = f"at {'least' if goal.at_least else 'most'} {number(goal.bound, 2)}"
    met = figure is not None and (figure >= goal.bound if goal.at_least else figure <= goal.bound)
    return Verdict(met, name, number(figure, 2), wanted)


def number(value, digits=1):
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == 0 else f"{value:,.{digits}f}"


def megabytes(value):
    return None if value is None else value / 1e6


def idle_table(rows):
    head = ["server", "bytes a connection", "lost", "PSS MB"]
    body = []
    for server in dict.fromkeys(row["server"] for row in rows):
        own = [row for row in rows if row["server"] == server]
        body.append(
            [
                server,
                number(median(own, "per_connection"), 0),
                number(sum(row["failed"] for row in own), 0),
                number(megabytes(median(own, "pss"))),
            ]
        )
    return head, body


def table(workload, rows):
    if workload.tool == "idle":
        return idle_table(rows)
    head = [
        "server",
        "at once",
        "req/s",
        "p50 ms",
        "p99 ms",
        "failed",
        "server µs",
        "PHP µs",
        "CPU µs/req",
        "client µs",
        "RSS MB",
        "PSS MB",
        "CPU of haulier against it",
        "others' CPU",
    ]
    body = []
    for count in at_once(rows):
        for server in dict.fromkeys(row["server"] for row in rows):
            own = of(rows, server, count)
            if own:
                body.append(line(rows, own, server, count))
    return head, body


def line(rows, own, server, count):
    client = [1e6 * row["client_cpu"] / max(row["done"], 1) for row in own]
    ratio = None if server == "haulier" else round_ratio(rows, "cpu_us", "haulier", server, count)
    return [
        server,
        f"{count:,}",
        number(median(own, "rps")),
        number(median(own, "p50"), 2),
        number(median(own, "p99"), 2),
        number(sum(row["failed"] for row in own), 0),
        number(median(own, "server_us")),
        number(median(own, "php_us")),
        number(median(own, "cpu_us")),
        number(statistics.median(client)),
        number(megabytes(median(own, "rss"))),
        number(megabytes(median(own, "pss"))),
        number(ratio, 2),
        " ".join(f"{row['foreign']:.2f}" for row in own),
    ]


def aligned(head, body, words=(0,)):
    """A Markdown table whose columns line up; those in `words` to the left, figures to the right."""
    widths = [max(len(row[column]) for row in [head, *body]) for column in range(len(head))]
    rule = ["-" * width if column in words else "-" * (width - 1) + ":" for column, width in enumerate(widths)]
    return "\n".join(
        "| "
        + " | ".join(
            text.ljust(width) if column in words else text.rjust(width)
            for column, (text, width) in enumerate(zip(row, widths))
        )
        + " |"
        for row in [head, rule, *body]
    )


def print_workload(workload, result):
    print(aligned(*table(workload, result["rows"])))
    for met, figure, measured, wanted in verdicts(workload, result["rows"]):
        print(f"{'met   ' if met else 'MISSED'}  {figure}: {measured}, wanted {wanted}")
    print(flush=True)


def machine():
    """The processor, memory and kernel, in one line."""
    model, memory = platform.machine(), 0
    with open("/proc/cpuinfo") as file:
        names = [text.split(":", 1)[1].strip() for text in file if text.startswith("model name")]
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / (1 << 20)
    kernel = f"{platform.system()} {platform.release()}"
    return f"{names[0] if names else model}, {os.cpu_count()} cores, {memory:.0f} GiB, {kernel}"


def commit():
    done = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def save(results, to, page):
    """Puts the new results in place of the older ones of the same workloads, and writes the page anew."""
    known = {}
    if os.path.exists(to):
        with open(to) as file:
            known = json.load(file)
    for result in results.values():
        result.update(machine=machine(), commit=commit())
    known.update(results)
    os.makedirs(os.path.dirname(to), exist_ok=True)
    with open(to + ".new", "w") as file:
        json.dump(known, file, indent=1)
        file.write("\n")
    os.replace(to + ".new", to)
    with open(page, "w") as file:
        file.write(markdown(known))


INTRODUCTION = """\
# Benchmarks

Written by `make bench`; do not edit. Every figure is the median of the rounds, servers taking turns. Servers are pinned
to one core and the load generator to another, so a rate is that of one core. All serve the same files and run the same
PHP, eight processes of it, with the settings in `bench/conf/`; every answer was checked byte by byte first. The raw
rows are in `bench/results/latest.json`.

- **server µs, PHP µs, CPU µs/req**: CPU time of the server's process tree over the requests answered; processes named
  php* are booked as PHP (mod_php cannot be told apart). **client µs** is the load generator's own.
- **RSS, PSS**: peak resident size of the tree (shared pages counted once a process), and its proportional size after
  the run.
- **CPU of haulier against it**: haulier's CPU per request over that server's in the same round; below 1 haulier needs
  less.
- **others' CPU**: processor seconds a second that nobody in the measurement used, by round; above {foreign} distrust
  the round.

Servers: {peers}.
"""


def summary(known):
    rows = [
        [name, figure, measured, wanted, "met" if met else "**missed**"]
        for name, workload in WORKLOADS.items()
        if name in known
        for met, figure, measured, wanted in verdicts(workload, known[name]["rows"])
    ]
    return aligned(["workload", "figure", "measured", "wanted", "goal"], rows, words=(0, 1, 4))


def markdown(known):
    peers = "; ".join(f"`{name}` {words}" for name, words in PEERS.items())
    parts = [INTRODUCTION.format(foreign=FOREIGN, peers=peers), "## Goals\n", summary(known), ""]
    for name, workload in WORKLOADS.items():
        if name not in known:
            continue
        result = known[name]
        parts += [
            f"## {name}\n",
            f"{workload.what[0].upper()}{workload.what[1:]}.\n",
            aligned(*table(workload, result["rows"])),
            "",
            f"{result['when']}, commit {result['commit']}; {result['machine']}; {version_line(result)}.",
            "",
        ]
    return "\n".join(parts)


def version_line(result):
    taking_part = {row["server"] for row in result["rows"]}
    texts = [
        text if name.split("-")[0] in text.lower() else f"{name} {text}"
        for name, text in result["versions"].items()
        if name in taking_part or name == "PHP"
    ]
    return ", ".join(dict.fromkeys(texts))
