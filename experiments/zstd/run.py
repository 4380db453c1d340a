#!/usr/bin/env python3
"""Experiment 4: one page of four megabytes, compressed by everybody who can (the zstd output-compression report, 2024).

PHP sends the page plain and the server compresses it: haulier at every level and as it decides by itself, nginx and
Caddy as they can; PHP's own gzencode() and ob_gzhandler; and a copy that was compressed once. Needs what `make bench`
needs; uses its servers, settings and lock. Writes docs/experiments/zstd.md and zstd.svg beside it.
"""

import argparse
import contextlib
import http.client
import os
import platform
import shutil
import signal
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [f"{ROOT}/bench", HERE]

import bench  # noqa: E402
import book  # noqa: E402
import chart  # noqa: E402
import load  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402

PAGE = f"{ROOT}/docs/experiments/zstd.md"
LEVELS = {"zstd": range(1, 20), "br": range(0, 12), "gzip": range(1, 13)}
NGINX = "gzip on; gzip_http_version 1.0; gzip_proxied any; gzip_comp_level {};"  # ab speaks HTTP/1.0


class Contestant:
    """A way to send the page: a server, a path, the coding that is asked for, and settings of its own."""

    def __init__(self, name, server, coding, path="page.php", more=None, group=None):
        self.name, self.server, self.coding, self.more = name, server, coding, more
        self.path, self.group = f"/zstd/{path}", group or name


def haulier_table(lines):
    return ("haulier.toml", f"\n[site.bench.compress]\n{lines}\n")


def contestants():
    yield Contestant("uncompressed", "haulier", "identity")
    for coding, levels in LEVELS.items():
        for level in levels:
            table = haulier_table(f"{coding} = {level}")
            yield Contestant(f"haulier {coding} {level}", "haulier", coding, more=table, group=f"haulier {coding}")
    for coding in LEVELS:
        yield Contestant(f"haulier, its choice, {coding} client", "haulier", coding, group="haulier, its choice")
    off = haulier_table('level = "off"')
    yield Contestant("PHP gzencode", "haulier", "gzip", "gzencode.php", off)
    yield Contestant("PHP ob_gzhandler", "haulier", "gzip", "ob_gzhandler.php", off)
    for level in (1, 6, 9):
        more = ("nginx.conf", NGINX.format(level))
        yield Contestant(f"nginx gzip {level}", "nginx", "gzip", more=more, group="nginx gzip")
    for coding in ("zstd", "gzip"):
        yield Contestant(f"Caddy encode {coding}", "caddy", coding, more=("Caddyfile", "encode zstd gzip"), group="Caddy")
    for coding in LEVELS:
        yield Contestant(f"haulier, stored copy, {coding}", "haulier", coding, "book.html", group="haulier, stored copy")


class Server(servers.Server):
    """A server of the benchmark with the contestant's own settings."""

    def __init__(self, contestant, place, haulier):
        self.more = contestant.more
        super().__init__(contestant.server, place, haulier)

    def render(self, template, **values):
        path = super().render(template, **values)
        if self.more and self.more[0] == template:
            with open(path) as file:
                text = file.read()
            text = {
                "nginx.conf": lambda: text.replace("gzip off;", self.more[1]),
                "Caddyfile": lambda: text.replace("file_server", f"file_server\n\t{self.more[1]}"),
            }.get(template, lambda: text + self.more[1])()
            with open(path, "w") as file:
                file.write(text)
        return path


def fetch(port, contestant):
    """(bytes on the wire, whether they are in the coding that was asked for)"""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", contestant.path, headers={"Accept-Encoding": contestant.coding})
        response = connection.getresponse()
        body = response.read()
    right = response.status == 200 and (response.getheader("Content-Encoding") or "identity") == contestant.coding
    return len(body), right


def settled(server, contestant):
    """The size once it no longer changes: a stored copy is made after the second request, and takes its time."""
    size, right = fetch(server.port, contestant)
    if "stored" in contestant.name:
        deadline = time.time() + 180
        first = size
        while time.time() < deadline and size == first:
            time.sleep(0.5)
            size, right = fetch(server.port, contestant)
        time.sleep(2.5)  # every thread has looked by then
        size, right = fetch(server.port, contestant)
    return size, right


def one_round(contestant, place, haulier, chosen, serial):
    """One contestant's turn; None if it does not send the page in the coding."""
    with Server(contestant, place, haulier) as server:
        measure.pin(server.roots, bench.cores()[0])
        size, right = settled(server, contestant)
        if not right:
            return None
        before = measure.Usage(server.roots)
        url = f"http://127.0.0.1:{server.port}{contestant.path}"
        command = ["ab", "-k", "-n", str(chosen.requests), "-c", "1", "-H", f"Accept-Encoding: {contestant.coding}", url]
        output, wall, _ = load.run(command, bench.cores()[1], 600)
        done = max(load.parse_ab(output, chosen.requests, wall)["done"], 1)
        time.sleep(0.05)
        spent, php = measure.Usage(server.roots).since(before)
    return dict(size=size, ms=1000 * wall / done, server=1000 * spent / done, php=1000 * php / done)


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def table(results):
    lines = ["| | bytes | ms a page | CPU ms, server | CPU ms, PHP | CPU ms |", "|---|---|---|---|---|---|"]
    for name, rows in results.items():
        server, php = median(rows, "server"), median(rows, "php")
        lines.append(
            f"| {name} | {median(rows, 'size'):,.0f} | {median(rows, 'ms'):,.1f} | {server:,.1f} | {php:,.1f} | {server + php:,.1f} |"
        )
    return "\n".join(lines)


def cpu(results, name):
    rows = results.get(name)
    return rows and median(rows, "server") + median(rows, "php")


def verdicts(results):
    """Each promise with what was measured."""
    promises = [
        ("haulier zstd 3", ["Caddy encode zstd"], 0.85),
        ("haulier gzip 6", ["nginx gzip 6"], 0.40),
    ]
    lines = []
    for ours, peers, most in promises:
        theirs = [cpu(results, peer) for peer in peers if peer in results]
        if ours in results and theirs:
            ratio = cpu(results, ours) / max(min(theirs), 1e-9)
            holds = "holds" if ratio <= most else "does not hold"
            lines.append(f"- {ours}: {ratio:.2f} × the CPU of the best of {', '.join(peers)} (≤ {most}): **{holds}**")
    return "\n".join(lines)


def page(chosen, results, versions):
    known = "\n".join(f"- {servers.PEERS.get(name, name)}: {version}" for name, version in versions.items())
    return f"""# A page of four megabytes, compressed

Written by `experiments/zstd/run.py` on {time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}; what is done and why stands in
[its README](../../experiments/zstd/README.md). {os.cpu_count()} cores, {platform.system()} {platform.release()}; servers on one
core, `ab -k -c 1 -n {chosen.requests}` on the other, median of {chosen.rounds} rounds. On loopback compression always looks
like a loss in time: no wire is there that fewer bytes would spare.

![Size against time](zstd.svg)

{table(results)}

## What was promised

{verdicts(results)}

## Versions

{known}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--haulier", default=os.environ.get("HAULIER"), metavar="PATH", help="the binary (or HAULIER=PATH)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="contestants whose name holds this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--text", metavar="FILE", help="a text of your own in the page")
    parser.add_argument("--page", default=PAGE, metavar="FILE")
    chosen = parser.parse_args()
    if not (chosen.haulier and os.access(chosen.haulier, os.X_OK)):
        parser.error("which haulier? Give --haulier PATH")
    return chosen


def place_with_book(stack, chosen):
    place = servers.Place()
    stack.callback(place.remove)
    shutil.copytree(f"{HERE}/php", f"{place.docroot}/zstd")
    book.write(f"{place.docroot}/zstd/book.html", chosen.text)
    return place


def main():
    chosen = arguments()
    haulier = os.path.abspath(chosen.haulier)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    results, versions = {}, {}
    with bench.the_only_run(), contextlib.ExitStack() as stack:
        place = place_with_book(stack, chosen)
        taking_part = [one for one in contestants() if not chosen.only or any(part in one.name for part in chosen.only)]
        for number in range(chosen.rounds):
            for one in taking_part:
                if not servers.available(one.server, haulier):
                    continue
                row = one_round(one, place, haulier, chosen, number)
                if row is None:
                    print(f"{one.name}: the answer is not in {one.coding}, left out", flush=True)
                    continue
                results.setdefault(one.name, []).append(row)
                versions[one.server] = servers.version(one.server, haulier)
                print(f"{one.name}: {row['size']:,} bytes, {row['server'] + row['php']:.1f} ms of CPU", flush=True)
    os.makedirs(os.path.dirname(chosen.page), exist_ok=True)
    groups = {}
    for one in taking_part:
        if one.name in results:
            point = (cpu(results, one.name), median(results[one.name], "size"), one.name)
            groups.setdefault(one.group, []).append(point)
    with open(chosen.page, "w") as file:
        file.write(page(chosen, results, dict(versions, PHP=place.php)))
    with open(os.path.splitext(chosen.page)[0] + ".svg", "w") as file:
        file.write(chart.scatter(groups, "CPU milliseconds a page", "bytes"))


if __name__ == "__main__":
    main()
