#!/usr/bin/env python3
"""Experiment 1: a download handed off (the Zend Download Server report of 2008), with fast and with slow readers.

A file of 498,000 bytes is delivered by a PHP script: `fpassthru()` against the hand-off that each server knows. First
as in 2008 with `ab`; then with readers of 20 KB/s, while a light PHP page is asked for. Needs what `make bench` needs;
uses its servers, settings and lock. Writes docs/experiments/zds.md.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, f"{ROOT}/bench")

import bench  # noqa: E402
import load  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402
from workloads import Workload  # noqa: E402

PAGE = f"{ROOT}/docs/experiments/zds.md"
FILE = "500k.png"
LIGHT = "/hello.php"
LIGHT_CONNECTIONS = 4
OFFLOAD = '\n[site.bench.offload]\ntypes = ["image/*"]\n'
SENDFILE = '    "x-sendfile" => "enable", "x-sendfile-docroot" => ( "@DOCROOT@/" ),\n    "min-procs"'


class Contestant:
    """A way to deliver the file: a server, a script, and what its settings need beyond those of the benchmark."""

    def __init__(self, name, server, script, mode, more=None):
        self.name, self.server, self.path, self.mode, self.more = name, server, f"/zds/{script}", mode, more


CONTESTANTS = [
    Contestant("haulier zend_send_file", "haulier", "zend.php", "handed"),
    Contestant("haulier X-Sendfile", "haulier", "sendfile.php", "handed"),
    Contestant("haulier fpassthru + rule", "haulier", "fpassthru.php", "transparent", ("haulier.toml", OFFLOAD)),
    Contestant("haulier fpassthru", "haulier", "fpassthru.php", "plain"),
    Contestant("nginx X-Accel-Redirect", "nginx", "accel.php", "handed"),
    Contestant("nginx fpassthru", "nginx", "fpassthru.php", "plain"),
    Contestant("lighttpd X-Sendfile", "lighttpd", "sendfile.php", "handed", ("lighttpd.conf", SENDFILE)),
    Contestant("lighttpd fpassthru", "lighttpd", "fpassthru.php", "plain"),
    Contestant("Apache mod_php fpassthru", "apache-php", "fpassthru.php", "plain"),
]


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
            more = self.more[1].replace("@DOCROOT@", self.place.docroot)
            # lighttpd's belong into its table, haulier's are a table of their own.
            text = text.replace('    "min-procs"', more) if template == "lighttpd.conf" else text + more
            with open(path, "w") as file:
                file.write(text)
        return path


class Times:
    """What the scripts note: how long each was busy."""

    def __init__(self, place):
        self.path = f"{place.make('docroot/times', 0o777)}/log"

    def __enter__(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.path)
        return self

    def __exit__(self, *_):
        self.milliseconds = []
        with contextlib.suppress(FileNotFoundError), open(self.path) as file:
            self.milliseconds = [int(line) / 1000 for line in file]

    @property
    def mean(self):
        return statistics.fmean(self.milliseconds) if self.milliseconds else None


def place_with_scripts(stack):
    place = servers.Place()
    stack.callback(place.remove)
    shutil.copytree(f"{HERE}/php", f"{place.docroot}/zds")
    place.make("docroot/times", 0o777)
    return place


def fast(contestant, place, haulier, chosen, serial):
    """ab as in 2008, but longer: req/s, CPU a download, script time."""
    workload = Workload("zds", "", contestant.path, "ab", [], requests=chosen.requests)
    with Server(contestant, place, haulier) as server:
        load.ab(f"http://127.0.0.1:{server.port}{contestant.path}", 40, 4, None, "127.0.0.1", place.path)
        with Times(place) as times:
            row = bench.one_round(workload, server, 10, serial)
    return dict(row, script_ms=times.mean)


def slow(contestant, place, haulier, chosen):
    """The light page alone, then beside the slow readers."""
    with Server(contestant, place, haulier) as server:
        measure.pin(server.roots, bench.cores()[0])
        light = f"http://127.0.0.1:{server.port}{LIGHT}"
        cpus = bench.cores()[1]
        load.wrk(light, LIGHT_CONNECTIONS, 1, cpus)
        alone = load.wrk(light, LIGHT_CONNECTIONS, chosen.seconds, cpus)
        with Times(place) as times, measure.PeakRss(server.roots) as rss:
            readers = start_readers(server, contestant, place, chosen)
            readers.stdout.readline()
            time.sleep(2)  # every script that will get a process has one
            beside = load.wrk(light, LIGHT_CONNECTIONS, chosen.seconds, cpus)
            output, _ = readers.communicate()
            pss = measure.pss(server.roots)
    said = json.loads(output.strip().splitlines()[-1])
    return dict(
        said,
        alone=alone["rps"],
        beside=beside["rps"],
        alone_p50=alone["p50"],
        alone_p99=alone["p99"],
        p50=beside["p50"],
        p99=beside["p99"],
        failed=beside["failed"],
        script_ms=times.mean,
        rss=rss.peak,
        pss=pss,
    )


def start_readers(server, contestant, place, chosen):
    command = [
        sys.executable,
        f"{HERE}/readers.py",
        str(server.port),
        contestant.path,
        str(chosen.readers),
        str(chosen.rate),
        str(chosen.limit),
        f"{place.docroot}/{FILE}",
    ]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, preexec_fn=load.before_exec(bench.cores()[1])
    )


def median(rows, key):
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


def text(value, form="{:,.1f}"):
    return "–" if value is None else form.format(value)


def fast_table(results):
    lines = [
        "| | req/s | p50 ms | server µs | PHP µs | CPU µs a download | script ms | peak RSS MB | failed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in results.items():
        cells = [
            text(median(rows, "rps"), "{:,.0f}"),
            text(median(rows, "p50")),
            *(text(median(rows, key), "{:,.0f}") for key in ("server_us", "php_us", "cpu_us")),
            text(median(rows, "script_ms"), "{:,.2f}"),
            text((median(rows, "rss") or 0) / 1e6, "{:,.0f}"),
            text(sum(row["failed"] for row in rows), "{:,.0f}"),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def slow_table(results):
    lines = [
        "| | light page alone, req/s | beside the readers | kept | p50 ms | p99 ms | alone p99 | "
        "downloads complete | first byte ms, median / last | script ms | peak RSS MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in results.items():
        alone, beside = median(rows, "alone"), median(rows, "beside")
        asked, complete = median(rows, "asked"), min(row["complete"] for row in rows)
        wrong = sum(row["wrong"] for row in rows)
        cells = [
            text(alone, "{:,.0f}"),
            text(beside, "{:,.0f}"),
            text(100 * beside / alone if alone else None, "{:.0f} %"),
            text(median(rows, "p50"), "{:,.2f}"),
            text(median(rows, "p99"), "{:,.2f}"),
            text(median(rows, "alone_p99"), "{:,.2f}"),
            f"{complete} of {asked:.0f}" + (f", {wrong} wrong" if wrong else ""),
            f"{text(median(rows, 'first_ms'), '{:,.0f}')} / {text(median(rows, 'last_first_ms'), '{:,.0f}')}",
            text(median(rows, "script_ms"), "{:,.2f}"),
            text((median(rows, "rss") or 0) / 1e6, "{:,.0f}"),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(fast_results, slow_results):
    """Each promise with what was measured."""
    lines = []
    for contestant in CONTESTANTS:
        rows = slow_results.get(contestant.name)
        if contestant.server != "haulier" or not rows:
            continue
        kept = median(rows, "beside") / max(median(rows, "alone"), 1)
        tail = (median(rows, "p99") or 1e9) / max(median(rows, "alone_p99") or 0, 1e-3)
        all_read = all(row["complete"] == row["asked"] for row in rows)
        script = median(rows, "script_ms") or 1e9
        holds = kept >= 0.95 and tail <= 1.5 and all_read and script < 5
        lines.append(
            f"- {contestant.name}: the light page keeps {100 * kept:.0f} % (≥ 95), its p99 is {tail:.2f} × (≤ 1.5), "
            f"{'every' if all_read else 'not every'} reader got every byte, a script is busy {script:.2f} ms (< 5): "
            f"**{'holds' if holds else 'does not hold'}**"
        )
    ours, theirs = fast_results.get("haulier X-Sendfile"), fast_results.get("lighttpd X-Sendfile")
    if ours and theirs:
        ratio = median(ours, "cpu_us") / max(median(theirs, "cpu_us"), 1e-9)
        lines.append(
            f"- Fast readers: a hand-off costs {ratio:.2f} × lighttpd's CPU (≤ 0.85): "
            f"**{'holds' if ratio <= 0.85 else 'does not hold'}**"
        )
    return "\n".join(lines)


def page(chosen, versions, fast_results, slow_results):
    known = "\n".join(f"- {servers.PEERS.get(name, name)}: {version}" for name, version in versions.items())
    return f"""# Handing a download off

Written by `experiments/zds/run.py` on {time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}; what is done and why stands in
[its README](../../experiments/zds/README.md). {os.cpu_count()} cores, {platform.system()} {platform.release()}; servers on one
core, clients on the other; 8 PHP processes each.

## Fast readers

`ab -c 10 -n {chosen.requests}`, a connection per request, 498,000 bytes each; median of {chosen.rounds} rounds. "script" is
how long the script ran, and with it held its PHP process.

{fast_table(fast_results)}

## Slow readers

{chosen.readers} readers of {chosen.rate / 1000:.0f} KB/s, at most {chosen.limit:.0f} s; meanwhile a light page
(`{LIGHT}`, wrk, {LIGHT_CONNECTIONS} connections, {chosen.seconds} s), as before alone. Median of {chosen.slow_rounds} rounds.

{slow_table(slow_results)}

## What was promised

{verdicts(fast_results, slow_results)}

## Versions

{known}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--haulier", default=os.environ.get("HAULIER"), metavar="PATH", help="the binary (or HAULIER=PATH)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="contestants whose name holds this")
    parser.add_argument("--rounds", type=int, default=3, help="with fast readers")
    parser.add_argument("--slow-rounds", type=int, default=1)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=20_000, help="bytes a second of each reader")
    parser.add_argument("--limit", type=float, default=40, help="seconds the readers may take")
    parser.add_argument("--seconds", type=int, default=10, help="of the light page")
    parser.add_argument("--page", default=PAGE, metavar="FILE")
    chosen = parser.parse_args()
    if not (chosen.haulier and os.access(chosen.haulier, os.X_OK)):
        parser.error("which haulier? Give --haulier PATH")
    return chosen


def those_that_deliver(place, haulier, chosen):
    """The contestants whose server is here and sends the right bytes."""
    with open(f"{place.docroot}/{FILE}", "rb") as file:
        whole = file.read()
    good, versions = [], {}
    for contestant in CONTESTANTS:
        if chosen.only and not any(part in contestant.name for part in chosen.only):
            continue
        if not servers.available(contestant.server, haulier):
            print(f"{contestant.name}: {contestant.server} is not on this machine, left out")
            continue
        with Server(contestant, place, haulier) as server:
            got = fetch(server.port, contestant.path)
        if got != whole:
            print(f"{contestant.name}: {len(got)} bytes that are not the file's, left out")
            continue
        good.append(contestant)
        versions[contestant.server] = servers.version(contestant.server, haulier)
    return good, dict(versions, PHP=place.php)


def fetch(port, path):
    with contextlib.closing(bench.files.http.client.HTTPConnection("127.0.0.1", port, timeout=15)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read()


def main():
    chosen = arguments()
    haulier = os.path.abspath(chosen.haulier)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    fast_results, slow_results = {}, {}
    with bench.the_only_run(), contextlib.ExitStack() as stack:
        place = place_with_scripts(stack)
        contestants, versions = those_that_deliver(place, haulier, chosen)
        for number in range(chosen.rounds):
            for serial, contestant in enumerate(contestants):
                row = fast(contestant, place, haulier, chosen, number * len(contestants) + serial)
                fast_results.setdefault(contestant.name, []).append(row)
                print(f"  fast {number + 1}  {contestant.name:26} {row['rps']:9,.0f}/s  cpu {row['cpu_us']:7,.0f} us", flush=True)
        for number in range(chosen.slow_rounds):
            for contestant in contestants:
                row = slow(contestant, place, haulier, chosen)
                slow_results.setdefault(contestant.name, []).append(row)
                print(
                    f"  slow {number + 1}  {contestant.name:26} light {row['alone']:9,.0f}/s -> {row['beside']:9,.0f}/s"
                    f"  complete {row['complete']} of {row['asked']}",
                    flush=True,
                )
    os.makedirs(os.path.dirname(chosen.page), exist_ok=True)
    with open(chosen.page, "w") as file:
        file.write(page(chosen, versions, fast_results, slow_results))
    print(f"Written: {chosen.page}")


if __name__ == "__main__":
    try:
        main()
    except servers.CannotStart as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
