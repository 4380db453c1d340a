#!/usr/bin/env python3
"""The script of the plan: one page of four megabytes, compressed in every way.

PHP sends the page plain and the server compresses it: haulier at every level and by its own choice, nginx, lighttpd and
Caddy; PHP's own gzencode() and ob_gzhandler; and a copy that was compressed once. Every contestant is a server of its own
with the settings of the benchmark. A plan has no loops, so this script writes the plan of all levels and has haulier run
it. Reads and writes JSON.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import book  # noqa: E402
import nested  # noqa: E402
from nested import CONF, FPM  # noqa: E402

QUICK = ["uncompressed", "haulier zstd 3", "nginx gzip 6", "PHP gzencode"]
LEVELS = {"zstd": range(1, 20), "br": range(0, 12), "gzip": range(1, 13)}
BROTLI = "/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so"
LIGHTTPD = """
server.modules += ( "mod_deflate" )
deflate.mimetypes = ( "text/html" )
deflate.allowed-encodings = ( "{}" )
"""
NGINX = "gzip on; gzip_proxied any; gzip_comp_level {};"


class Contestant:
    """A way to send the page: a server, a path, the requested coding, and settings of its own."""

    def __init__(self, name, server, coding, path="page.php", more=None, group=None):
        self.name, self.server, self.coding, self.more = name, server, coding, more
        self.path, self.group = f"/zstd/{path}", group or name


# Pairs of a goal are measured in one table, so that drift affects both.
PAIRS = [
    ("haulier zstd 3", "lighttpd zstd"),
    ("haulier br 4", "nginx br 4"),
    ("haulier gzip 6", "nginx gzip 6"),
    ("haulier, stored copy, zstd", "file of that length"),
]
# Levels near those of the goals.
NEAR = ["zstd 3", "br 4", "gzip 5", "gzip 6", "gzip 7", "gzip 8"]
# First levels that need seconds for a page.
SLOW = {"zstd": 15, "br": 9, "gzip": 10}
# Requests of one round. A slice is counted and not timed: the slowest page takes longer than a slice should.
REQUESTS = {
    "pairs": {"zstd": 30, "br": 16, "gzip": 8},
    "near": {"identity": 60, "zstd": 16, "br": 8, "gzip": 6},
    "levels": {"zstd": 10, "br": 8, "gzip": 8},
    "slow levels": {"zstd": 2, "br": 2, "gzip": 2},
    "stored copies": {"zstd": 3000, "br": 3000, "gzip": 3000},
}
FLAGS = {
    "pairs": "--rounds 8",
    "near": "--rounds 3",
    "levels": "--rounds 1",
    "slow levels": "--rounds 1",
    # It is made after the second request, and takes its time.
    "stored copies": "--rounds 8 --warmup 8s",
}


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


def kind(contestant):
    """The table a contestant belongs to."""
    name = contestant.name
    if "stored" in name or name == "file of that length":
        return "stored copies"
    if any(name in pair for pair in PAIRS):
        return "pairs"
    level = name.removeprefix("haulier ")
    if name == level or level in NEAR or not level[-1].isdigit():
        return "near"
    return "slow levels" if int(level.split()[1]) >= SLOW[contestant.coding] else "levels"


def tables(chosen):
    """(requested coding, kind) → contestants. A plain file is never coded."""
    found = {}
    for one in chosen:
        coding = "zstd" if one.name == "file of that length" else one.coding
        found.setdefault((coding, kind(one)), []).append(one)
    return found


def plan(asked, chosen):
    """The plan of the contestants: a server each, and a table for each coding and kind."""
    out = nested.head(asked, "Compression")
    for number, one in enumerate(chosen):
        out += server(f"s{number}", one, asked["place"])
    names = {one.name: f"s{number}" for number, one in enumerate(chosen)}
    for (coding, which), of in tables(chosen).items():
        flags = f"-c 1 -n {REQUESTS[which][coding]} --accept {coding} {FLAGS[which]}"
        out += nested.part(f"{coding}, {which}", flags, {one.name: names[one.name] + one.path for one in of})
    return out


RUN = {
    "haulier": (["'@HAULIER@' run -c '@RUN@/haulier.toml'"], ["haulier.toml"]),
    "nginx": ([FPM, "nginx -c '@RUN@/nginx.conf'"], ["nginx.conf", "php-fpm.conf"]),
    "lighttpd": (["lighttpd -D -f '@RUN@/lighttpd.conf'"], ["lighttpd.conf"]),
    "caddy": ([FPM, "caddy run --adapter caddyfile --config '@RUN@/Caddyfile'"], ["Caddyfile", "php-fpm.conf"]),
}


def server(key, contestant, place):
    """The server of a contestant: a configuration of the benchmark with settings of its own."""
    commands, names = RUN[contestant.server]
    files = {name: os.path.join(CONF, name) for name in names}
    if contestant.more:
        name, more = contestant.more
        with open(files[name]) as file:
            text = changed(name, file.read(), more)
        files[name] = f"{place}/{key}.template"
        with open(files[name], "w") as file:
            file.write(text)
    return f"""[server.{key}]
about = {nested.quoted(contestant.name)}
run = {json.dumps(commands)}
files = {nested.table(files)}
env = {{ HOME = "@RUN@", XDG_DATA_HOME = "@RUN@", XDG_CONFIG_HOME = "@RUN@" }}
ready = {nested.quoted(contestant.path)}
patience = "60s"

"""


def changed(name, text, more):
    """A configuration with a contestant's own settings."""
    if name == "nginx.conf":
        module = f"load_module {BROTLI};\n" if "brotli" in more else ""
        return module + text.replace("gzip off;", more)
    if name == "Caddyfile":
        return text.replace("file_server", f"file_server\n\t{more}")
    return text + more


def measured(page, chosen):
    """(name → a row for each slice, name → why it was left out)"""
    results, left_out = {}, nested.left_out(page)
    coding = {one.name: one.coding for one in chosen}
    for target, point in nested.points(page):
        name = target["name"]
        if target["answer"]["encoding"] != coding[name]:
            left_out[name] = f"the answer is not in {coding[name]}"
        else:
            results[name] = rows_of(point)
    return {name: rows for name, rows in results.items() if rows}, left_out


def rows_of(point):
    """A row for each slice; slices of the same `round` were measured one after the other."""
    total, met, rows = point["total"], {}, []
    for one in point["slices"]:
        number = met[one["round"]] = met.get(one["round"], -1) + 1
        spent = one["server"] or {}
        cpu, php = spent.get("cpu_us_per_request"), spent.get("php_cpu_us_per_request") or 0.0
        if one["requests"] and cpu is not None:
            size = total["bytes"]["body"] / total["requests"]
            times = dict(ms=1000 / one["requests_per_second"], server=(cpu - php) / 1000, php=php / 1000)
            rows.append(dict(times, size=size, round=(one["round"], number)))
    return rows


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
    """Ratio of CPU within each round, for every pair."""
    rows = []
    for pair in PAIRS:
        if ratios := ratios_of(results, *pair):
            rows.append({"name": " / ".join(pair), "cells": [statistics.median(ratios), min(ratios), max(ratios)]})
    return {
        "title": "Side by side",
        "columns": [{"name": "CPU, median of the rounds"}, {"name": "least"}, {"name": "most"}],
        "rows": rows,
        "note": "The two of a pair are measured one after the other; each ratio is that of one round.",
    }


def ratios_of(results, ours, peer):
    """Ratios of CPU in the rounds that both have."""
    spent = [{row["round"]: row["server"] + row["php"] for row in results.get(name, [])} for name in (ours, peer)]
    return [one / max(spent[1][number], 1e-9) for number, one in spent[0].items() if number in spent[1]]


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
    """CPU milliseconds of each installed coder's own tool for the page, without its start."""
    page, empty = f"{place}/docroot/zstd/book.html", f"{place}/empty"
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
        "note": "zstd, brotli and libdeflate-gzip as programs, without their start; median of fifteen.",
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


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", metavar="FILE", help="a text of your own in the page")
    return parser.parse_args()


def make_docroot(place, text):
    """Makes the page in every form; returns the name of the book."""
    folder = f"{place}/docroot/zstd"
    shutil.copytree(f"{HERE}/php", folder)
    name = book.write(f"{folder}/book.html", text)
    with open(f"{folder}/copy.bin", "wb") as copy:
        subprocess.run(["zstd", "-19", "-q", "-c", f"{folder}/book.html"], stdout=copy, check=True)
    return name


def main():
    text, asked = arguments().text, json.load(sys.stdin)
    book_name = make_docroot(asked["place"], text)
    chosen = [one for one in contestants() if not asked["quick"] or one.name in QUICK]
    results, left_out = measured(nested.run(asked, plan(asked, chosen), "compression"), chosen)
    coders = {} if asked["quick"] else bare(asked["place"])
    results = {one.name: results[one.name] for one in chosen if one.name in results}
    sentences = [f"left out: {name} ({why})" for name, why in left_out.items()]
    found = [table(results, book_name)] + [pairs for pairs in [side_by_side(results)] if pairs["rows"]]
    found += [coders_alone(coders)] if coders else []
    json.dump({"sentences": sentences, "tables": found, "charts": [chart(results)]}, sys.stdout)


if __name__ == "__main__":
    main()
