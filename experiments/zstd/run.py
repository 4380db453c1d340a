#!/usr/bin/env python3
"""The script of the plan: one page of four megabytes, compressed by everybody who can.

PHP sends the page plain and the server compresses it: haulier at every level and as it decides by itself, nginx,
lighttpd and Caddy as they can; PHP's own gzencode() and ob_gzhandler; and a copy that was compressed once. Every
contestant is a server of its own, so the script starts them, with the servers and settings of the benchmark. Reads and
writes JSON.
"""

import argparse
import contextlib
import http.client
import json
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [f"{ROOT}/bench", HERE]

import book  # noqa: E402
import load  # noqa: E402
import measure  # noqa: E402
import servers  # noqa: E402

# What may go wrong with one of many: it is left out, and the others still count.
FAULTS = (servers.CannotStart, OSError, http.client.HTTPException, LookupError, ValueError, TypeError, AttributeError)
QUICK = ["uncompressed", "haulier zstd 3", "nginx gzip 6", "PHP gzencode"]
LEVELS = {"zstd": range(1, 20), "br": range(0, 12), "gzip": range(1, 13)}
BROTLI = "/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so"
LIGHTTPD = """
server.modules += ( "mod_deflate" )
deflate.mimetypes = ( "text/html" )
deflate.allowed-encodings = ( "{}" )
"""
NGINX = "gzip on; gzip_http_version 1.0; gzip_proxied any; gzip_comp_level {};"  # ab speaks HTTP/1.0


class Contestant:
    """A way to send the page: a server, a path, the coding that is asked for, and settings of its own."""

    def __init__(self, name, server, coding, path="page.php", more=None, group=None):
        self.name, self.server, self.coding, self.more = name, server, coding, more
        self.path, self.group = f"/zstd/{path}", group or name


# What is worth knowing beside the promises is measured in every third round; the other levels once, for the chart.
NEAR = ["zstd 3", "br 4", "gzip 5", "gzip 6", "gzip 7", "gzip 8"]
# Whose outcome stands in a promise is measured in every round, one after the other: both meet the same machine.
PAIRS = [
    ("haulier zstd 3", "lighttpd zstd"),
    ("haulier br 4", "nginx br 4"),
    ("haulier gzip 6", "nginx gzip 6"),
    ("haulier, stored copy, zstd", "file of that length"),
]


def has_turn(contestant, number):
    """Whether it takes part in this round."""
    if any(contestant.name in pair for pair in PAIRS):
        return True
    is_near = not contestant.name.startswith("haulier ") or contestant.name.removeprefix("haulier ") in NEAR
    return number % 3 == 0 if is_near else number == 0


def haulier_table(lines):
    return ("haulier.toml", f"\n[site.bench.compress]\n{lines}\n")


# Longest a contestant is measured in one round; one that needs more for a page is asked for a single one.
MOST_SECONDS = 1


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
    if os.path.exists(BROTLI):
        more = ("nginx.conf", "brotli on; brotli_comp_level 4;")
        yield Contestant("nginx br 4", "nginx", "br", more=more)
    for coding in LEVELS:
        more = ("lighttpd.conf", LIGHTTPD.format(coding))
        yield Contestant(f"lighttpd {coding}", "lighttpd", coding, more=more, group="lighttpd")
    for coding in ("zstd", "gzip"):
        yield Contestant(f"Caddy encode {coding}", "caddy", coding, more=("Caddyfile", "encode zstd gzip"), group="Caddy")
    yield Contestant("file of that length", "haulier", "identity", "copy.bin")
    for coding in LEVELS:
        yield Contestant(f"haulier, stored copy, {coding}", "haulier", coding, "book.html", group="haulier, stored copy")


def turns(number):
    """The contestants in the order of this round: pairs together, in every other round the other way around."""
    pairs = {name: place for place, names in enumerate(PAIRS) for name in names}
    found = sorted(contestants(), key=lambda one: pairs.get(one.name, len(PAIRS)))
    return found[::-1] if number % 2 else found


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
                "nginx.conf": lambda: self.nginx(text),
                "Caddyfile": lambda: text.replace("file_server", f"file_server\n\t{self.more[1]}"),
            }.get(template, lambda: text + self.more[1])()
            with open(path, "w") as file:
                file.write(text)
        return path

    def nginx(self, text):
        module = f"load_module {BROTLI};\n" if "brotli" in self.more[1] else ""
        return module + text.replace("gzip off;", self.more[1])


def fetch(port, contestant):
    """(bytes on the wire, whether they are in the coding that was asked for, whether that is a stored copy)"""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", contestant.path, headers={"Accept-Encoding": contestant.coding})
        response = connection.getresponse()
        body = response.read()
    right = response.status == 200 and (response.getheader("Content-Encoding") or "identity") == contestant.coding
    # What is coded on its way has a weak tag, or none.
    return len(body), right, (response.getheader("ETag") or "W/").startswith('"')


def settled(server, contestant):
    """Size, coding and seconds of a page; of the stored copy where that is meant: it is made after the second request,
    if it is not kept from the round before, and takes its time."""
    begun = time.monotonic()
    size, right, stored = fetch(server.port, contestant)
    if "stored" in contestant.name:
        deadline = time.time() + 60
        while not stored and time.time() < deadline:
            time.sleep(0.5)
            size, right, stored = fetch(server.port, contestant)
        time.sleep(2.5)  # every thread has looked by then
        size, right, stored = fetch(server.port, contestant)
        right = right and stored
    if (took := time.monotonic() - begun) < MOST_SECONDS or "stored" in contestant.name:
        begun = time.monotonic()  # PHP has started now, and its cache is filled
        fetch(server.port, contestant)
        took = time.monotonic() - begun
    return size, right, took


def one_round(contestant, place, haulier, chosen):
    """One contestant's turn; None if it does not send the page in the coding."""
    with Server(contestant, place, haulier) as server:
        measure.pin(server.roots, servers.cores()[0])
        size, right, took = settled(server, contestant)
        if not right:
            return None
        # The highest levels take seconds a page, a stored copy less than a millisecond.
        requests = max(1, min(chosen.requests, int(MOST_SECONDS / took)))
        before = measure.Usage(server.roots)
        url = f"http://127.0.0.1:{server.port}{contestant.path}"
        command = ["ab", "-k", "-n", str(requests), "-c", "1", "-H", f"Accept-Encoding: {contestant.coding}", url]
        output, wall, _ = load.run(command, servers.cores()[1], 600)
        done = max(load.parse_ab(output, requests, wall)["done"], 1)
        time.sleep(0.05)
        spent, php = measure.Usage(server.roots).since(before)
    return dict(size=size, ms=1000 * wall / done, server=1000 * spent / done, php=1000 * php / done)


def median(rows, key):
    return statistics.median(row[key] for row in rows)


def table(results, book_name):
    rows = []
    for name, measured in results.items():
        server, php = 1000 * median(measured, "server"), 1000 * median(measured, "php")
        cells = [median(measured, "size"), 1000 * median(measured, "ms"), server, php, server + php]
        rows.append({"name": name, "cells": cells})
    columns = [
        {"name": "bytes", "unit": "bytes"},
        {"name": "time of a page", "unit": "time"},
        {"name": "CPU, server", "unit": "time"},
        {"name": "CPU, PHP", "unit": "time"},
        {"name": "CPU", "unit": "time"},
    ]
    return {"columns": columns, "rows": rows, "note": f"The book is {book_name}."}


def side_by_side(results):
    """What a round's CPU is of the other's in the same round."""
    rows = []
    for pair in PAIRS:
        if ratios := ratios_of(results, *pair):
            rows.append({"name": " / ".join(pair), "cells": [statistics.median(ratios), min(ratios), max(ratios)]})
    return {
        "title": "Side by side",
        "columns": [{"name": "CPU, median of the rounds"}, {"name": "least"}, {"name": "most"}],
        "rows": rows,
        "note": "Both of a pair are measured one after the other; each ratio is that of one round.",
    }


def ratios_of(results, ours, peer):
    """Of the rounds in which both had a turn."""
    spent = [{row["round"]: row["server"] + row["php"] for row in results.get(name, [])} for name in (ours, peer)]
    return [one / max(spent[1][number], 1e-9) for number, one in spent[0].items() if number in spent[1]]


def ratio_of(results, ours, peer):
    return statistics.median(ratios_of(results, ours, peer))


def chart(results):
    """Size against time, the levels of a coding joined."""
    groups = {}
    for one in contestants():
        groups.setdefault(one.group, []).append(one.name)
    series = []
    for group, names in groups.items():
        points = [[1000 * max(cpu(results, name), 0.01), size(results, name)] for name in names if name in results]
        if points:
            series.append({"name": group, "points": points})
    return {
        "title": "Size against CPU time of a page",
        "x": {"name": "CPU time of a page, server and PHP", "unit": "time", "log": True},
        "y": {"name": "bytes on the wire", "unit": "bytes", "log": True},
        "series": series,
    }


def cpu(results, name):
    rows = results.get(name)
    return rows and median(rows, "server") + median(rows, "php")


BARE = {
    "zstd 3": ["zstd", "--single-thread", "-3", "-c"],
    "br 4": ["brotli", "-q", "4", "-c"],
    "gzip 6": ["libdeflate-gzip", "-6", "-c"],
}


def bare(place):
    """CPU milliseconds of each coder's own tool for the page, its start taken off; only of those that are here."""
    page, empty = f"{place.docroot}/zstd/book.html", f"{place.path}/empty"
    open(empty, "w").close()
    found = {}
    for name, command in BARE.items():
        if shutil.which(command[0]):
            found[name] = tool_ms(command + [page]) - tool_ms(command + [empty])
    return found


def coders_alone(coders):
    return {
        "title": "The coders alone",
        "columns": [{"name": "CPU", "unit": "time"}],
        "rows": [{"name": name, "cells": [1000 * spent]} for name, spent in coders.items()],
        "note": "zstd, brotli and libdeflate-gzip as programs, their start taken off; median of fifteen.",
    }


def tool_ms(command, times=15):
    spent = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return statistics.median(spent)


def size(results, name):
    return median(results[name], "size")


def verdicts(results, coders):
    """Each promise with what was measured."""
    return list(filter(None, [*against_peers(results), *against_coders(results, coders), stored_copy(results)]))


def against_peers(results):
    for ours, peers, most in [
        ("haulier zstd 3", ["Caddy encode zstd", "lighttpd zstd"], 0.85),
        ("haulier br 4", ["nginx br 4"], 1.0),
        (gzip_as_small_as(results, "nginx gzip 6"), ["nginx gzip 6"], 0.40),
    ]:
        known = [peer for peer in peers if peer in results]
        if ours not in results or not known:
            continue
        best = min(known, key=lambda peer: cpu(results, peer))
        ratio = ratio_of(results, ours, best)
        bytes_ratio = size(results, ours) / size(results, best)
        holds = "holds" if ratio <= most else "does not hold"
        text = f"{ours}: {ratio:.2f} × the CPU of {best} (≤ {most}), {bytes_ratio:.3f} × its bytes: {holds}"
        yield text


def gzip_as_small_as(results, peer):
    """The cheapest level of ours that sends no more bytes than the peer; level 6 if none does."""
    ours = [name for name in results if name.startswith("haulier gzip")]
    if peer not in results or not ours:
        return "haulier gzip 6"
    small = [name for name in ours if size(results, name) <= 1.001 * size(results, peer)]
    return min(small, key=lambda name: cpu(results, name), default="haulier gzip 6")


def against_coders(results, coders):
    for name, spent in coders.items():
        ours = f"haulier {name}"
        if ours in results and "uncompressed" in results:
            ratio = cpu(results, ours) / (spent + cpu(results, "uncompressed"))
            holds = "holds" if ratio <= 1.15 else "does not hold"
            yield f"{ours}: {ratio:.2f} × the coder's own tool ({spent:.1f} ms) and the plain page (≤ 1.15): {holds}"


def stored_copy(results):
    ours, file = "haulier, stored copy, zstd", "file of that length"
    if ours in results and file in results:
        ratio = ratio_of(results, ours, file)
        holds = "holds" if ratio <= 1.1 else "does not hold"
        return f"{ours}: {ratio:.2f} × the CPU of a plain file of that length (≤ 1.1): {holds}"
    return None


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=3000, help="at most, of each in each round")
    parser.add_argument("--text", metavar="FILE", help="a text of your own in the page")
    return parser.parse_args()


def place_with_book(stack, chosen):
    """A place for servers with the page in it, and what book the page is."""
    place = servers.Place()
    stack.callback(place.remove)
    shutil.copytree(f"{HERE}/php", f"{place.docroot}/zstd")
    book_name = book.write(f"{place.docroot}/zstd/book.html", chosen.text)
    with open(f"{place.docroot}/zstd/copy.bin", "wb") as copy:
        subprocess.run(["zstd", "-19", "-q", "-c", f"{place.docroot}/zstd/book.html"], stdout=copy, check=True)
    return place, book_name


def main():
    chosen, asked = arguments(), json.load(sys.stdin)
    if asked["quick"]:
        chosen.rounds, chosen.requests = 1, 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` runs
    results, left_out = {}, {}
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        place, book_name = place_with_book(stack, chosen)
        for number in range(chosen.rounds):
            for one in turns(number):
                if (asked["quick"] and one.name not in QUICK) or not has_turn(one, number) or one.name in left_out:
                    continue
                if not servers.available(one.server, asked["haulier"]):
                    left_out[one.name] = f"{one.server} is not on this machine"
                    continue
                try:
                    row = one_round(one, place, asked["haulier"], chosen)
                except FAULTS as why:
                    left_out[one.name] = f"it failed: {why!r}"
                    print(f"{one.name}: {why!r}", flush=True)
                    continue
                if row is None:
                    left_out[one.name] = f"the answer is not in {one.coding}"
                    continue
                results.setdefault(one.name, []).append(row | {"round": number})
                print(f"{one.name}: {row['size']:,} bytes, {row['server'] + row['php']:.1f} ms of CPU", flush=True)
        coders = {} if asked["quick"] else bare(place)
    results = {one.name: results[one.name] for one in contestants() if one.name in results}
    sentences = verdicts(results, coders) + [f"left out: {name} ({why})" for name, why in left_out.items()]
    tables = [table(results, book_name)] + [pairs for pairs in [side_by_side(results)] if pairs["rows"]]
    tables += [coders_alone(coders)] if coders else []
    json.dump({"sentences": sentences, "tables": tables, "charts": [chart(results)]}, sys.stdout)


if __name__ == "__main__":
    main()
