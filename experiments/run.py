#!/usr/bin/env python3
"""Runs the experiments one after the other and writes one report of all of them.

    experiments/run.py [--haulier PROGRAM] [--quick] [--only TEXT] [zds zimg symfony zstd download]

Each experiment is a plan of its own (`haulier bench run`). What it found is kept in results/NAME.json as soon as it has
ended; the report and docs/experiments.md are written anew after each from all that is kept. So an experiment can be run
alone, and one that fails takes nothing from the others: what was not measured again stays, with its date.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE, f"{ROOT}/bench"]

import findings  # noqa: E402
import versions  # noqa: E402

NAMES = ["zds", "zimg", "symfony", "zstd", "download"]  # in the order of the report
PATIENCE = 25 * 60  # seconds for one; then it is ended and the next one begins
ENGINE = "The engine alone"


def main():
    chosen = arguments()
    os.makedirs(chosen.results, exist_ok=True)
    failed = []
    if chosen.report and not report(chosen):
        failed.append("the report could not be written")
    for name in chosen.names:
        problem = experiment(name, chosen)
        if problem:
            failed.append(f"{name}: {problem}")
            print(f"error: {failed[-1]}", file=sys.stderr, flush=True)
        if not report(chosen):
            failed.append(f"{name}: its figures are kept, but the report could not be written")
    for line in failed:
        print(f"error: {line}", file=sys.stderr)
    return 1 if failed else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(NAMES)} (all)")
    parser.add_argument("--haulier", default=f"{ROOT}/target/release/haulier", help="the program")
    parser.add_argument("--thumbnails", help="the example program of the image engine (beside the program)")
    parser.add_argument("--output", default=f"{ROOT}/target", help="where experiments.html and .json go")
    parser.add_argument("--page", default=f"{ROOT}/docs/experiments.md", help="the page in the repository (not with --quick)")
    parser.add_argument("--results", help="where each one's figures are kept (results; with --quick below --output)")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="only parts whose title holds this")
    parser.add_argument("--quick", action="store_true", help="does it run? The figures mean nothing and are kept apart")
    parser.add_argument("--report", action="store_true", help="measure nothing; write the report of what is kept")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown:
        parser.error(f"no experiment is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    chosen.names = [] if chosen.report else chosen.names or NAMES
    chosen.haulier = os.path.abspath(chosen.haulier)
    chosen.thumbnails = chosen.thumbnails or f"{os.path.dirname(chosen.haulier)}/examples/thumbnails"
    chosen.results = chosen.results or (f"{chosen.output}/experiments-quick" if chosen.quick else f"{HERE}/results")
    os.makedirs(chosen.output, exist_ok=True)  # before anything is measured: what is kept there must find its place
    return chosen


def experiment(name, chosen):
    """Measures one and keeps it; what went wrong, in words."""
    begun = time.monotonic()
    book, problem = measure(name, chosen)
    if not book:
        return problem
    book["command"] = ["haulier", "bench", "run", f"experiments/{name}/plan.toml"]  # without the paths of this machine
    page = book["pages"][0]
    page["versions"] = page["versions"] or versions.of(name, chosen.haulier)
    page["versions"] += versions.programs(name)
    for part in page["parts"]:
        part["measured"] = book["started"]
    if name == "zimg" and not chosen.quick and not chosen.only:
        made, wrong = engine(chosen)
        page["parts"] += made
        problem = problem or wrong
    keep(name, book, time.monotonic() - begun, chosen)
    failures = [f"{part['title']}: {part['why']}" for part in page["parts"] if part["part"] == "failed"]
    return "; ".join(failures) or problem


def measure(name, chosen):
    """(the book of one run of the plan or None, what went wrong or None)"""
    with tempfile.TemporaryDirectory(prefix="haulier-experiment-") as place:
        target = f"{place}/book.json"
        plan = f"experiments/{name}/plan.toml"
        words = [word for text in chosen.only for word in ("--only", text)] + ["--quick"] * chosen.quick
        try:
            process = subprocess.Popen([chosen.haulier, "bench", "run", plan, *words, "-o", target], cwd=ROOT)
        except OSError as why:
            return None, f"{chosen.haulier}: {why}"
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = f"more than {PATIENCE // 60} minutes"
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()  # so that what it started ends, too
            process.wait()
        if not os.path.exists(target):
            return None, f"nothing was measured ({code})"
        with open(target) as file:
            return json.load(file), None if code == 0 else f"it ended with {code}"


def engine(chosen):
    """(the part of the engine without a server, what went wrong or None)"""
    with tempfile.TemporaryDirectory(prefix="haulier-experiment-") as place:
        target = f"{place}/part.json"
        command = [f"{HERE}/zimg/engine.py", "--thumbnails", chosen.thumbnails, "--part", target]
        try:
            code = subprocess.run(command, stdout=subprocess.DEVNULL, timeout=PATIENCE).returncode
        except (OSError, subprocess.TimeoutExpired) as why:
            return [], f"the engine: {why}"
        if code:
            return [], f"the engine ended with {code}"
        with open(target) as file:
            return [dict(json.load(file), title=ENGINE, measured=now())], None


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def keep(name, book, seconds, chosen):
    """Parts that were measured take the place of those that were kept; the others stay."""
    path, page = f"{chosen.results}/{name}.json", book["pages"][0]
    book["duration_s"] = seconds
    if old := read(path):
        before = old["pages"][0]
        page["parts"] = merge(before["parts"], page["parts"])
        if chosen.only:
            book["duration_s"] = max(seconds, old["duration_s"])
            page["versions"] = list(map(list, {**dict(before["versions"]), **dict(page["versions"])}.items()))
            page["left_out"] = list(map(list, {**dict(before["left_out"]), **dict(page["left_out"])}.items()))
    write(path, json.dumps(book, ensure_ascii=False, separators=(",", ":")) + "\n")


def merge(old, new):
    """The new parts, and the old ones of those that failed or were not measured, in the order of the old."""
    found = {part["title"]: part for part in new}
    for part in old:
        if part["title"] not in found or found[part["title"]]["part"] == "failed":
            found[part["title"]] = part
    order = [part["title"] for part in old]
    order += [title for title in found if title not in order]
    return [found[title] for title in order]


def read(path):
    """What a file holds, or None of one that is not there."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def write(path, text):
    """The whole file or none of it."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def report(chosen):
    """The report of everything that is kept: HTML and JSON, and the page in docs; whether they were written."""
    books = {name: book for name in NAMES if (book := read(f"{chosen.results}/{name}.json"))}
    if not books:
        return True
    path = f"{chosen.output}/experiments.json"
    try:
        book = whole(books, chosen.quick)
    except (LookupError, ValueError, TypeError, AttributeError):
        traceback.print_exc()  # what was measured is kept, and the next experiment has its turn
        return False
    write(path, json.dumps(book, ensure_ascii=False))
    targets = [f"{chosen.output}/experiments.html"] + ([] if chosen.quick else [chosen.page])
    outputs = [word for target in targets for word in ("-o", target)]
    return subprocess.run([chosen.haulier, "bench", "report", path, *outputs]).returncode == 0


def whole(books, quick):
    """One book of all, with what came out before the pages, and on each page before its parts."""
    found = {name: findings.of(name, book["pages"][0]) for name, book in books.items()}
    newest = max(books.values(), key=lambda book: book["started"])
    pages = [page(book, found[name], quick) for name, book in books.items()]
    first = findings.overview({name: (book["pages"][0]["title"], found[name]) for name, book in books.items()})
    times = findings.times({book["pages"][0]["title"]: book for book in books.values()})
    parts = [part("In short", *first)] if quick else [part("In short", *first), part("When and how long", [], [times])]
    about = "Figures of a quick run: they mean nothing." if quick else ABOUT
    summary = dict(title="What came out", about=about, parts=parts, versions=[], left_out=[], plan=None)
    return dict(
        newest,
        title="Experiments",
        command=["make", "experiments"],
        duration_s=sum(book["duration_s"] for book in books.values()),
        pages=[summary, *pages],
    )


ABOUT = """\
Five public benchmark reports, made again with the servers and programs of today on one machine. Each asked a good \
question and left it half answered. A goal is what haulier promised itself before it was measured; where none is named, \
nothing was promised. “Ahead” and “behind” mean by more than 3 %."""


def page(book, found, quick):
    """The page of an experiment: what came out, then how."""
    made = dict(book["pages"][0])
    dates = sorted({part.get("measured", book["started"])[:16] for part in made["parts"]})
    when = " and ".join(date.replace("T", " ") + " UTC" for date in dates)
    first = [part("What came out", *findings.shown(found))] if found and not quick else []
    made["versions"] = [*made["versions"], ["measured", f"{when}, {book['tool']}"]]
    made["parts"] = first + made["parts"]
    return made


def part(title, sentences, tables):
    outcome = dict(sentences=sentences, tables=tables, charts=[])
    return dict(part="script", title=title, about="", outcome=outcome)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
