"""Summary of an experiment: for each question haulier's figure, the best peer's, their ratio, and the goal.

The figures come from the tables of its page. A question without figures is left out.
"""

import statistics
from dataclasses import dataclass

EVEN = 0.03  # a ratio nearer to one shows no difference
SLOW = "Slow readers, and a light page beside them"
HANDED = ["haulier zend_send_file", "haulier X-Sendfile", "haulier fpassthru + rule"]


@dataclass
class Finding:
    """One line of the summary. `ratio` is haulier's figure divided by the peer's."""

    question: str
    haulier: str
    peer: str = "–"
    ratio: float | None = None
    goal: str = ""
    holds: bool | None = None  # None without a goal
    more_is_better: bool = False

    def outcome(self):
        if self.holds is not None:
            return "holds" if self.holds else "MISSED"
        if self.ratio is None:
            return "–"
        if abs(self.ratio - 1) <= EVEN:
            return "even"
        return "ahead" if (self.ratio > 1) == self.more_is_better else "behind"

    def cells(self):
        ratio = "–" if self.ratio is None else f"{self.ratio:.2f} ×"
        return [self.outcome(), self.haulier, self.peer, ratio, self.goal or "–"]


class Page:
    """The figures of a page by part, table, row and column."""

    def __init__(self, page):
        self.parts = {part["title"]: part for part in page["parts"]}

    def targets(self, title):
        """Name → figures, of a part that `haulier bench` measured."""
        part = self.parts.get(title, {})
        if part.get("part") != "run":
            return {}
        names = [target["name"] for target in part["run"]["targets"]]
        found = {}
        for point in part["run"]["points"]:
            total, server = point["total"], point["total"].get("server") or {}
            figures = dict(rps=total["requests_per_second"], cpu=server.get("cpu_us_per_request"))
            figures.update(php=server.get("php_cpu_us_per_request"), pss=server.get("pss_bytes"))
            figures.update({f"p{percent:.0f}": value for percent, value in total["latency"]["percentiles"]})
            found[names[point["target"]]] = figures | {"slices": cpu_of_slices(point)}
        return found

    def rows(self, title, table=0):
        """Row → column → cell, of a table of a script, by its number or the beginning of its title."""
        tables = self.parts.get(title, {}).get("outcome", {}).get("tables", [])
        if isinstance(table, str):
            tables = [one for one in tables if one.get("title", "").startswith(table)]
            table = 0
        if table >= len(tables):
            return {}
        columns = [column["name"] for column in tables[table]["columns"]]
        return {row["name"]: dict(zip(columns, row["cells"])) for row in tables[table]["rows"]}


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def rate(value):
    return f"{number(value)}/s"


def time(us):
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} µs"


def size(count):
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:,.0f} KB"


def share(value):
    return f"{100 * value:.0f} %"


def is_figure(cell):
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def best_of(figures, key, more=False):
    """(name, figure) of the best, or None without figures."""
    known = {name: row[key] for name, row in figures.items() if is_figure(row.get(key))}
    if not known:
        return None
    name = (max if more else min)(known, key=known.get)
    return name, known[name]


def against(question, ours, theirs, key, show, more=False, most=None):
    """haulier's best way and the best of the peers; `most` is a goal for their ratio."""
    one, other = best_of(ours, key, more), best_of(theirs, key, more)
    if not one or not other:
        return
    ratio = one[1] / max(other[1], 1e-9)
    name = "" if len(ours) == 1 or one[0] == "haulier" else f" ({one[0].removeprefix('haulier').strip(' ,:+')})"
    goal, holds = ("", None) if most is None else (f"≤ {most} ×", ratio <= most)
    yield Finding(question, show(one[1]) + name, f"{show(other[1])} ({other[0]})", ratio, goal, holds, more)


def cpu_of_slices(point):
    """(round, number within it) → CPU of a request in that slice."""
    found = {}
    for one in point.get("slices", []):
        number = sum(key[0] == one["round"] for key in found)
        found[one["round"], number] = (one.get("server") or {}).get("cpu_us_per_request")
    return found


def cpu_by_slices(question, ours, theirs, most=None):
    """CPU as by `against`, but with the median ratio over slices of the same round, which drift affects alike."""
    for finding in against(question, ours, theirs, "cpu", time, most=most):
        one, other = (best_of(figures, "cpu")[0] for figures in (ours, theirs))
        pairs = [(cpu, theirs[other]["slices"].get(key)) for key, cpu in ours[one]["slices"].items()]
        if ratios := [cpu / peer for cpu, peer in pairs if cpu and peer]:
            finding.ratio = statistics.median(ratios)
            finding.holds = None if most is None else finding.ratio <= most
        yield finding


def only(figures, *names):
    return {name: figures[name] for name in names if name in figures}


def zds(page):
    fast, slow = page.targets("Fast readers"), page.rows(SLOW)
    for name in ("haulier zend_send_file", "haulier X-Sendfile"):
        question = f"CPU of a download, fast readers: {name.removeprefix('haulier ')}"
        yield from cpu_by_slices(question, only(fast, name), only(fast, "lighttpd X-Sendfile"), most=0.85)
    peers = {name: row for name, row in fast.items() if not name.startswith("haulier")}
    yield from cpu_by_slices("CPU of a download, any way", only(fast, *HANDED), peers)
    ours, theirs = only(slow, *HANDED), {name: row for name, row in slow.items() if not name.startswith("haulier")}
    if not ours:
        return
    yield worst("A light page’s rate beside 200 slow readers", ours, theirs, kept, share, "≥ 95 %", lambda x: x >= 0.95, True)
    yield worst("A light page’s p99 beside them, against alone", ours, theirs, tail, "{:.2f} ×".format, "≤ 1.5 ×", lambda x: x <= 1.5)
    yield worst("Readers that got every byte", ours, theirs, complete, share, "all", lambda x: x == 1, True)
    yield worst("PHP process held for a download", ours, theirs, busy, time, "< 5 ms", lambda x: x < 5000)


def kept(row):
    return row["kept"]


def tail(row):
    return row["p99 beside"] / row["p99 alone"] if row["p99 beside"] and row["p99 alone"] else None


def complete(row):
    got, asked = row["downloads complete"].split(",")[0].split(" of ")
    return int(got) / int(asked)


def busy(row):
    return row["script busy"]


def worst(question, ours, theirs, figure, show, goal, holds, more=False):
    """A goal of all of haulier's ways: the worst of them counts. The peer is the best one."""
    found = [value for row in ours.values() if (value := figure(row)) is not None]
    if not found:
        return Finding(question, "no answer", goal=goal, holds=False)
    value, best = (min if more else max)(found), (max if more else min)(found)
    words = " to ".join(dict.fromkeys(show(one) for one in sorted((value, best))))
    peers = best_of({name: dict(figure=figure(row)) for name, row in theirs.items()}, "figure", more)
    return Finding(question, words, f"{show(peers[1])} ({peers[0]})" if peers else "–", None, goal, holds(value), more)


def zimg(page):
    rows = page.rows("Files, caches, and what is made")
    static, memory = rows.get("static, 10 KB: haulier"), rows.get("warm: haulier, memory")
    if static and memory:
        ratio = memory["requests/s"] / max(static["requests/s"], 1e-9)
        peer = f"{rate(static['requests/s'])} (its own file of 10 KB)"
        yield Finding("A warm variant, from memory", rate(memory["requests/s"]), peer, ratio, "≥ 0.9 ×", ratio >= 0.9, True)
    yield from against("A warm variant beside a file", only(rows, "warm: haulier, memory"), only(rows, "static, 10 KB: nginx"), "requests/s", rate, more=True)
    for tier in ("disk", "memcached", "Redis"):
        ours = only(rows, f"warm: haulier, {tier} alone")
        yield from against(f"A warm variant from {tier} alone, beside a file", ours, only(rows, "static, 10 KB: nginx"), "requests/s", rate, more=True)
    peers = {name: row for name, row in rows.items() if name.startswith("cold: ") and "haulier" not in name}
    yield from against("A cold variant, CPU", only(rows, "cold: haulier"), peers, "CPU of a request", time)
    yield from engine(page.rows("The engine alone"))
    yield from sweep(page)


def engine(rows):
    goals = [("thumbnail 100 × 100", "libvips", 1.5), ("thumbnail 100 × 100", "ImageMagick", 10), ("800 wide", "libvips", 1.4)]
    for task, peer, least in goals:
        row = rows.get(task)
        if row:
            times = row[peer] / row["haulier"]
            words = f"{time(row['haulier'])} of CPU"
            yield Finding(f"The engine, {task}", words, f"{time(row[peer])} ({peer})", 1 / times, f"≤ 1/{least} ×", times >= least)
        quality = f"{task}, SSIM"
        if quality in rows and peer == "libvips":
            ours, theirs = rows[quality]["haulier"], rows[quality][peer]
            yield Finding(f"The engine, {task}: SSIM", ours, f"{theirs} ({peer})", None, "no lower", float(ours) >= float(theirs), True)


def sweep(page):
    part = "Files, caches, and what is made"
    rates, failed = page.rows(part, "zimg’s echo, requests"), page.rows(part, "zimg’s echo, failed")
    ours = {level: row["haulier"] for level, row in rates.items() if is_figure(row.get("haulier"))}
    if not ours:
        return
    top = list(ours)[-1]
    fewest = {name: dict(sum=sum(row[name] or 0 for row in failed.values())) for name in failed[top] if name != "haulier"}
    lost, peer = sum(row["haulier"] for row in failed.values()), best_of(fewest, "sum")
    words = f"{number(peer[1])} ({peer[0]})" if peer else "–"
    yield Finding(f"Failures up to {top} connections", number(lost), words, None, "none", lost == 0)
    kept, best = ours[top] / max(max(ours.values()), 1e-9), {}
    for name in rates[top]:
        known = [row[name] for row in rates.values() if is_figure(row[name])]
        if name != "haulier" and is_figure(rates[top][name]):
            best[name] = dict(kept=rates[top][name] / max(max(known), 1e-9), rps=rates[top][name])
    peer = best_of(best, "kept", True)
    words = f"{share(peer[1])} ({peer[0]})" if peer else "–"
    yield Finding(f"Share of its best rate at {top} connections", share(kept), words, None, "≥ 90 %", kept >= 0.9, True)
    yield from against(f"Rate at {top} connections", {"haulier": dict(rps=ours[top])}, best, "rps", rate, more=True)


def symfony(page):
    few, many = page.targets("Three at once, 50 requests"), page.targets("Twenty at once, 1,000 requests")
    yield from halves("Rate, three at once", few, "rps", rate, True)
    yield from halves("Rate, twenty at once", many, "rps", rate, True)
    yield from halves("p99, twenty at once", many, "p99", time)
    yield from halves("CPU of a request, server and PHP", many, "cpu", time)
    # mod_php runs in the server's process, so their CPU times are not known apart.
    apart = {name: dict(own=row["cpu"] - row["php"]) for name, row in many.items() if row["cpu"] and row["php"]}
    yield from halves("CPU of a request, the server’s alone", apart, "own", time)
    yield from halves("Memory (PSS) of the whole tree", many, "pss", size)
    booted = page.targets("Worker mode, twenty at once")
    ours = only(booted, "haulier, worker mode")
    classic = only(booted, "nginx + php-fpm", "lighttpd + its php-cgi", "Apache prefork, mod_php")
    yield from cpu_by_slices("CPU of a request in worker mode, beside peers without one", ours, classic, most=0.4)
    yield from cpu_by_slices("CPU of a request in worker mode, beside haulier without it", ours, only(booted, "haulier"), most=0.45)


def halves(question, figures, key, show, more=False):
    ours = {name: row for name, row in figures.items() if name.startswith("haulier")}
    theirs = {name: row for name, row in figures.items() if name not in ours}
    return against(question, ours, theirs, key, show, more)


def zstd(page):
    rows, coders = page.rows("Every coding, every level"), page.rows("Every coding, every level", "The coders alone")
    pairs = page.rows("Every coding, every level", "Side by side")
    peers = only(rows, "Caddy encode zstd", "lighttpd zstd")
    yield from as_small("zstd 3, CPU of the page", rows, pairs, "haulier zstd 3", peers, 0.85)
    yield from as_small("br 4, CPU of the page", rows, pairs, "haulier br 4", only(rows, "nginx br 4"), 1.0)
    yield from as_small("gzip, CPU of the page", rows, pairs, gzip_as_small(rows), only(rows, "nginx gzip 6"), 0.4)
    plain = rows.get("uncompressed", {}).get("CPU")
    for name, row in coders.items():
        ours = rows.get(f"haulier {name}")
        if ours and plain:
            bare = row["CPU"] + plain
            ratio = ours["CPU"] / bare
            peer = f"{time(bare)} (its own tool, and the plain page)"
            yield Finding(f"{name} against the bare coder", time(ours["CPU"]), peer, ratio, "≤ 1.15 ×", ratio <= 1.15)
    copy, file = only(rows, "haulier, stored copy, zstd"), only(rows, "file of that length")
    yield from by_rounds(pairs, copy, file, 1.1, against("A stored copy, CPU", copy, file, "CPU", time, most=1.1))
    ours = only(rows, "haulier, its choice, zstd client")
    yield from against("Its own choice against PHP, time of the page", ours, only(rows, "PHP gzencode", "PHP ob_gzhandler"), "time of a page", time)
    yield from against("Its own choice against PHP, bytes", ours, only(rows, "PHP gzencode", "PHP ob_gzhandler"), "bytes", size)
    yield from against("Its own choice against the peers, time of the page", ours, {**peers, **only(rows, "nginx br 4", "nginx gzip 6", "Caddy encode gzip")}, "time of a page", time)


def by_rounds(pairs, ours, theirs, most, found):
    """Findings with the ratio over rounds, if it was measured, in place of that of the medians."""
    for one in found:
        names = f"{next(iter(ours))} / {best_of(theirs, 'CPU')[0]}"
        ratio = next(iter(pairs.get(names, {}).values()), None)
        if is_figure(ratio):
            one.ratio, one.holds = ratio, ratio <= most
        yield one


def as_small(question, rows, pairs, ours, peers, most):
    """CPU and bytes, compared with the cheapest peer."""
    cheapest = best_of(peers, "CPU")
    found = against(question, only(rows, ours), peers, "CPU", time, most=most)
    for one in by_rounds(pairs, [ours], peers, most, found):
        bytes_ratio = rows[ours]["bytes"] / peers[cheapest[0]]["bytes"]
        one.question += f" ({bytes_ratio:.2f} × the bytes)"
        yield one


def gzip_as_small(rows):
    """haulier's cheapest level that sends no more bytes than nginx at 6; level 6 if none does."""
    known = {name: row for name, row in rows.items() if name.startswith("haulier gzip")}
    peer = rows.get("nginx gzip 6")
    small = [name for name, row in known.items() if peer and row["bytes"] <= 1.001 * peer["bytes"]]
    return min(small, key=lambda name: known[name]["CPU"], default="haulier gzip 6")


def download(page):
    programs, cells = "Today’s programs", "The 64 cells of 2005, against two servers"
    ends = page.rows(programs, "After the last byte")
    ours = [cell for name, row in ends.items() if name.startswith("haulier") for cell in row.values()]
    ours += [cell for row in page.rows(programs, "haulier get in the cells").values() for cell in row.values()]
    if ours:
        words = [cell for cell in ours if not is_figure(cell)]
        latest = max((cell for cell in ours if is_figure(cell)), default=0)
        others = {name: dict(most=max(row.values())) for name, row in ends.items() if all(map(is_figure, row.values()))}
        peer = best_of({name: row for name, row in others.items() if not name.startswith("haulier")}, "most")
        shown = "; ".join(words) or time(latest)
        beside = f"{time(peer[1])} ({peer[0]})" if peer else "–"
        yield Finding("Longest time from the last byte to the end", shown, beside, None, "≤ 50 ms", not words and latest <= 50_000)
    yield from means(page.rows(programs, "Time for 100 MB, median"))
    spent = page.rows(programs, "CPU time for a GB")
    known = {name: dict(most=max(row.values())) for name, row in spent.items() if all(map(is_figure, row.values()))}
    if "haulier get" in known:
        most, peer = known["haulier get"]["most"], best_of(only(known, "curl", "wget", "aria2c"), "most")
        beside = f"{time(peer[1])} ({peer[0]})" if peer else "–"
        yield Finding("CPU for a GB to a file", time(most), beside, peer and most / peer[1], "≤ 0.75 s", most <= 750_000)
    slow = page.rows(programs, "Time for 100 MB where")
    pair = [next(iter(slow.get(name, {}).values()), None) for name in ("haulier get -x 16", "curl")]
    if all(map(is_figure, pair)):
        ratio = pair[0] / pair[1]
        yield Finding("100 MB where each connection gets 1 MB/s", time(pair[0]), f"{time(pair[1])} (curl)", ratio, "≤ 1/10 ×", ratio <= 0.1)
    wrong = {name: sum(cell == "WRONG FILE" for cell in row.values()) for name, row in page.rows("A server that cannot be trusted").items()}
    if "haulier get" in wrong:
        ours = sum(count for name, count in wrong.items() if name.startswith("haulier"))
        others = sum(count > 0 for name, count in wrong.items() if not name.startswith("haulier"))
        theirs = f"{others} of {sum(not name.startswith('haulier') for name in wrong)} others did so"
        yield Finding("Wrong files called complete", number(ours), theirs, None, "none", ours == 0)
    ends = {name: sum(is_whole(cell) for row in page.rows(cells, name).values() for cell in row.values()) for name in ("haulier", "apache")}
    count = sum(len(row) for row in page.rows(cells, "haulier").values())
    if count:
        yield Finding("The PHP clients of 2005: cells without a wait", f"{ends['haulier']} of {count}", f"{ends['apache']} of {count} (Apache)")


def means(rows):
    """haulier get and curl over links without a limit."""
    ours, curl = rows.get("haulier get", {}), rows.get("curl", {})
    free = [name for name in ours if "a second" not in name and is_figure(ours[name]) and is_figure(curl.get(name))]
    if free:
        one, other = (statistics.geometric_mean(row[name] for name in free) for row in (ours, curl))
        yield Finding("100 MB on a free link, to a file", time(one), f"{time(other)} (curl)", one / other, "≤ 1 ×", one <= other)


def is_whole(cell):
    return isinstance(cell, str) and cell.replace(",", "").isdigit()


QUESTIONS = {"zds": zds, "zimg": zimg, "symfony": symfony, "zstd": zstd, "download": download}


def of(name, page):
    """All findings of an experiment."""
    return list(QUESTIONS[name](Page(page)))


COLUMNS = [{"name": name} for name in ("outcome", "haulier", "best peer", "ratio", "goal")]


def shown(found):
    """Sentences and tables for the top of an experiment's page."""
    rows = [{"name": one.question, "cells": one.cells()} for one in found]
    return sentences(found), [{"columns": COLUMNS, "rows": rows}]


def sentences(found):
    said = []
    goals = [one for one in found if one.holds is not None]
    missed = [one for one in goals if not one.holds]
    if goals:
        said.append(f"{len(goals) - len(missed)} of {len(goals)} goals hold")
    said += [f"missed: {one.question}: {figures(one)}, wanted {one.goal}" for one in missed]
    for outcome in ("ahead", "even", "behind"):
        named = [f"{one.question} ({one.ratio:.2f} ×)" for one in found if one.outcome() == outcome]
        if named:
            said.append(f"{outcome} of the best peer: {'; '.join(named)}".replace("even of", "even with").replace("behind of", "behind"))
    return said


def figures(one):
    return one.haulier if one.ratio is None else f"{one.haulier}, {one.ratio:.2f} × {one.peer}"


def overview(experiments):
    """Sentences and tables of all experiments: {name: (title, findings)}."""
    every = [one for _, found in experiments.values() for one in found if one.holds is not None]
    said = [f"{sum(one.holds for one in every)} of {len(every)} goals hold"] if every else []
    tables = [dict(shown(found)[1][0], title=title) for title, found in experiments.values() if found]
    return said, tables


def times(books):
    """Date, duration, program and machine of each experiment: {title: book}."""
    columns = [{"name": name} for name in ("measured", "minutes", "by", "machine")]
    rows = []
    for title, book in books.items():
        machine = book["machine"]
        words = f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_bytes'] / 1e9:.1f} GB, {machine['kernel']}"
        when = book["started"][:16].replace("T", " ") + " UTC"
        rows.append({"name": title, "cells": [when, f"{book['duration_s'] / 60:.1f}", book["tool"], words]})
    total = sum(book["duration_s"] for book in books.values()) / 60
    return {"columns": columns, "rows": rows, "note": f"{total:.1f} minutes in all."}
