#!/usr/bin/env python3
"""The script of the plan: one page of four megabytes, compressed by everybody who can.

PHP sends the page plain and the server compresses it: haulier at every level and as it decides by itself, nginx,
lighttpd and Caddy as they can; PHP's own gzencode() and ob_gzhandler; and a copy that was compressed once. Every
contestant is a server of its own with the settings of the benchmark. A plan has no loops, so this script writes the plan
of all levels and has haulier run it. Reads and writes JSON.
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
CONF = os.path.join(HERE, "../../bench/conf")
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import book  # noqa: E402
import nested  # noqa: E402

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
    """A way to send the page: a server, a path, the coding that is asked for, and settings of its own."""

    def __init__(self, name, server, coding, path="page.php", more=None, group=None):
        self.name, self.server, self.coding, self.more = name, server, coding, more
        self.path, self.group = f"/zstd/{path}", group or name


# Whose outcome stands in a promise is measured in one table with its peer: both meet the same machine.
PAIRS = [
    ("haulier zstd 3", "lighttpd zstd"),
    ("haulier br 4", "nginx br 4"),
    ("haulier gzip 6", "nginx gzip 6"),
    ("haulier, stored copy, zstd", "file of that length"),
]
# What is worth knowing beside the promises.
NEAR = ["zstd 3", "br 4", "gzip 5", "gzip 6", "gzip 7", "gzip 8"]
# Levels that need seconds for a page.
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
    """(coding that is asked for, kind) → contestants. A plain file is plain whatever is asked for."""
    found = {}
    for one in chosen:
        coding = "zstd" if one.name == "file of that length" else one.coding
        found.setdefault((coding, kind(one)), []).append(one)
    return found


def plan(asked, chosen):
    """The plan of the contestants: a server each, and tables of those who are asked alike."""
    place = asked["place"]
    out = f"""
[plan]
title = "Compression"
prepare = "cp '{CONF}/php.ini' '@PLACE@/php.ini'"
env = {{ PHP_INI_SCAN_DIR = "", PHPRC = "@PLACE@" }}
{nested.cores(asked)}
[values]
DOCROOT = "{place}/docroot"
ROOT_DIR = "{place}/docroot"
APP = "plain"
FRONT = ""
FASTCGI = ""
HTTPS = ""
HTTP2 = ""
TLS = ""
KEEPALIVE = "keepalive 6; keepalive_timeout 5s; keepalive_requests 1000000;"
KEEP_CONN = "on"
"""
    for number, one in enumerate(chosen):
        out += server(f"s{number}", one, place)
    names = {one.name: f"s{number}" for number, one in enumerate(chosen)}
    for (coding, which), of in tables(chosen).items():
        flags = f"-c 1 -n {REQUESTS[which][coding]} --accept {coding} {FLAGS[which]}"
        out += f"\n[[table]]\ntitle = {nested.quoted(f'{coding}, {which}')}\nflags = {nested.quoted(flags)}\n[table.targets]\n"
        out += "".join(f"{nested.quoted(one.name)} = {nested.quoted(names[one.name] + one.path)}\n" for one in of)
    return out


FPM = "php-fpm@PHP_VERSION@ -F -c '@PLACE@/php.ini' -y '@RUN@/php-fpm.conf'"
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
    listed = ", ".join(f"{nested.quoted(name)} = {nested.quoted(path)}" for name, path in files.items())
    return f"""
[server.{key}]
about = {nested.quoted(contestant.name)}
run = {json.dumps(commands)}
files = {{ {listed} }}
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
    for run in (part["run"] for part in page["parts"] if part["part"] == "run"):
        for point in run["points"]:
            target = run["targets"][point["target"]]
            name = target["name"]
            if target["answer"]["encoding"] != coding[name]:
                left_out[name] = f"the answer is not in {coding[name]}"
            else:
                results[name] = rows_of(point)
    return {name: rows for name, rows in results.items() if rows}, left_out


def rows_of(point):
    """A row for each slice; `round` tells which slices of others were measured beside it."""
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
    """What a round's CPU is of the other's in the same round."""
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
    parser.add_argument("--text", metavar="FILE", help="a text of your own in the page")
    return parser.parse_args()


def make_docroot(place, text):
    """The page in every form; what book it is."""
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
    sentences = verdicts(results, coders) + [f"left out: {name} ({why})" for name, why in left_out.items()]
    found = [table(results, book_name)] + [pairs for pairs in [side_by_side(results)] if pairs["rows"]]
    found += [coders_alone(coders)] if coders else []
    json.dump({"sentences": sentences, "tables": found, "charts": [chart(results)]}, sys.stdout)


if __name__ == "__main__":
    main()
