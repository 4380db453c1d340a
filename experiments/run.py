#!/usr/bin/env python3
"""Runs the experiments one after the other and writes one report of all of them.

    experiments/run.py [--haulier PROGRAM] [--quick] [--only TEXT] [zds zimg symfony zstd download]

Each experiment is a plan, and `haulier bench run --keep` keeps its figures in results/NAME.json. A plan has no goals over
several tables, so `findings.py` judges them. After each experiment the report and docs/experiments.md are written from all
kept figures. So an experiment can be run alone, and one that fails does not affect the others: figures that were not
measured again stay, with their date.
"""

import argparse
import json
import os
import subprocess
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [HERE]

import findings  # noqa: E402

NAMES = ["zds", "zimg", "symfony", "zstd", "download"]  # in the order of the report
TIMEOUT = 25 * 60  # seconds for one experiment


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
    chosen.results = chosen.results or (f"{chosen.output}/experiments-quick" if chosen.quick else f"{HERE}/results")
    os.makedirs(chosen.output, exist_ok=True)  # before measuring, which writes there with --quick
    return chosen


def experiment(name, chosen):
    """Measures an experiment and keeps its figures. Returns a message if it failed."""
    kept = f"{chosen.results}/{name}.json"
    words = [word for text in chosen.only for word in ("--only", text)]
    words += ["--quick", "-o", kept] if chosen.quick else ["--keep", kept]
    command = [chosen.haulier, "bench", "run", f"experiments/{name}/plan.toml", *words]
    before = read(kept)
    try:
        process = subprocess.Popen(command, cwd=ROOT)
    except OSError as why:
        return f"{chosen.haulier}: {why}"
    try:
        code = process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        code = f"more than {TIMEOUT // 60} minutes"
    finally:
        if process.poll() is None:
            process.terminate()  # it ends its servers
        process.wait()
    book = read(kept)
    if not book or book == before:
        return f"nothing was measured ({code})"
    failures = [f"{part['title']}: {part['why']}" for part in book["pages"][0]["parts"] if part["part"] == "failed"]
    return "; ".join(failures) or (None if code == 0 else f"it ended with {code}")


def read(path):
    """The JSON in a file, or None if there is no file."""
    try:
        with open(path) as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def write(path, text):
    """Replaces a file in one step."""
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)


def report(chosen):
    """Writes the report of all kept figures: HTML, JSON and the page in docs. Returns False if that failed."""
    books = {name: book for name in NAMES if (book := read(f"{chosen.results}/{name}.json"))}
    if not books:
        return True
    path = f"{chosen.output}/experiments.json"
    try:
        book = whole(books, chosen.quick)
    except (LookupError, ValueError, TypeError, AttributeError):
        traceback.print_exc()  # the figures are kept, and the next experiment can run
        return False
    write(path, json.dumps(book, ensure_ascii=False))
    targets = [f"{chosen.output}/experiments.html"] + ([] if chosen.quick else [chosen.page])
    outputs = [word for target in targets for word in ("-o", target)]
    return subprocess.run([chosen.haulier, "bench", "report", path, *outputs]).returncode == 0


def whole(books, quick):
    """One book of all experiments. The summary is its first page, and the first part of each page."""
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
Five public benchmark reports, repeated on one machine with today’s servers and programs. Each asked a good question \
and answered it only in part. A goal was set before haulier was measured; a line without a goal promises nothing. \
“Ahead” and “behind” mean a difference of more than 3 %."""


def page(book, found, quick):
    """The page of an experiment: its summary, then its parts."""
    made = dict(book["pages"][0])
    dates = sorted({part.get("measured", book["started"])[:16] for part in made["parts"]})
    when = " and ".join(date.replace("T", " ") + " UTC" for date in dates)
    first = [part("What came out", *findings.shown(found))] if found and not quick else []
    made["versions"] = [*made["versions"], ["measured", f"{when}, {book['tool']}"]]
    for one in made["parts"]:
        one.pop("measured", None)  # the page has all dates in one line
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
