#!/usr/bin/env python3
"""Experiment 2, the engine: variants a second of CPU, beside libvips and ImageMagick, without any server.

Real photographs (Debian's package mate-backgrounds, GPL-2+) become thumbnails of 100 × 100 and pictures 800 wide, JPEG
at quality 75. Every program works on one thread; what it takes to start is measured and left out. The quality of both is
that against a Lanczos reference of the whole photograph. Needs ImageMagick and libvips-tools; writes
docs/experiments/zimg-engine.md.
"""

import argparse
import glob
import json
import math
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = f"{ROOT}/docs/experiments/zimg-engine.md"
PACKAGE = "mate-backgrounds"
INSTALLED = "/usr/share/backgrounds/mate"
LARGEST = 5 << 20  # bytes; what is larger is no upload of anybody
TASKS = {
    "thumbnail 100 × 100": {
        "query": "w=100&h=100&f=jpeg",
        "vips": ["--size", "100x100", "--smartcrop", "centre"],
        "magick": ["-resize", "100x100^", "-gravity", "center", "-extent", "100x100"],
        "goals": {"libvips": 1.5, "ImageMagick": 10.0},
    },
    "800 wide": {
        "query": "w=800&f=jpeg",
        "vips": ["--size", "800x"],
        "magick": ["-resize", "800x"],
        "goals": {"libvips": 1.4},
    },
}
ONE_THREAD = {**os.environ, "VIPS_CONCURRENCY": "1", "OMP_NUM_THREADS": "1", "MAGICK_THREAD_LIMIT": "1"}


def main():
    arguments = parse()
    if arguments.script:
        asked = json.load(sys.stdin)
        if asked["quick"]:
            return json.dump({"sentences": ["a quick run leaves this out"]}, sys.stdout)
        arguments.thumbnails = f"{os.path.dirname(asked['haulier'])}/examples/thumbnails"
    for program in ("vipsthumbnail", "convert"):
        if not shutil.which(program):
            sys.exit(f"error: {program} is not installed (libvips-tools, imagemagick)")
    with tempfile.TemporaryDirectory(prefix="haulier-zimg-") as directory:
        photos = find_photos(arguments.photos, directory)
        results = {name: measure(task, photos, arguments, directory) for name, task in TASKS.items()}
    page = render(results, photos, arguments)
    os.makedirs(os.path.dirname(os.path.abspath(arguments.page)), exist_ok=True)
    with open(arguments.page, "w", encoding="utf-8") as file:
        file.write(page)
    if arguments.script:
        return json.dump(outcome(results), sys.stdout)
    print(page)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--thumbnails", default=f"{ROOT}/target/release/examples/thumbnails", help="our example program")
    parser.add_argument("--photos", help="a directory of JPEGs instead of the package")
    parser.add_argument("--rounds", type=int, default=5, help="variants of each photograph (5)")
    parser.add_argument("--page", default=PAGE, help="the page that is written")
    parser.add_argument("--script", action="store_true", help="as a script of the plan: JSON in, the summary as JSON out")
    parser.add_argument("--conditions", default="", help="a sentence for the page about what else the machine was doing")
    return parser.parse_args()


def find_photos(named, directory):
    """The JPEGs of a directory, of the installed package, or of the package fetched for this run alone."""
    place = named or (INSTALLED if os.path.isdir(INSTALLED) else None)
    if not place:
        place = f"{directory}/package"
        os.mkdir(place, 0o755)
        subprocess.run(["apt-get", "-q", "download", PACKAGE], cwd=place, check=True, stdout=subprocess.DEVNULL)
        archive = glob.glob(f"{place}/*.deb")[0]
        subprocess.run(["dpkg-deb", "-x", archive, place], check=True)
    found = sorted(glob.glob(f"{place}/**/*.jpg", recursive=True))
    found = [path for path in found if os.path.getsize(path) <= LARGEST and not os.path.islink(path)]
    if not found:
        sys.exit(f"error: no photographs in {place}")
    return found


def cpu_of(command, **more):
    """CPU seconds that a command takes, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=ONE_THREAD, stdout=subprocess.DEVNULL, **more)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(task, photos, arguments, directory):
    """CPU milliseconds and quality of each photograph, for each engine."""
    rows = []
    for photo in photos:
        name = os.path.splitext(os.path.basename(photo))[0]
        outputs = {engine: f"{directory}/{engine}-{name}.jpg" for engine in ("haulier", "libvips", "ImageMagick")}
        times = {
            "haulier": ours(task, photo, arguments, outputs["haulier"], directory),
            "libvips": vips(task, photo, arguments.rounds, outputs["libvips"], directory),
            "ImageMagick": magick(task, photo, arguments.rounds, outputs["ImageMagick"]),
        }
        reference = f"{directory}/reference.png"
        subprocess.run(["convert", photo, "-filter", "Lanczos", *task["magick"], reference], check=True)
        quality = {engine: quality_of(path, reference) for engine, path in outputs.items()}
        sizes = {engine: os.path.getsize(path) for engine, path in outputs.items()}
        rows.append({"photo": name, "cpu": times, "quality": quality, "bytes": sizes})
        print(f"{name}: {', '.join(f'{engine} {ms:.2f} ms' for engine, ms in times.items())}", file=sys.stderr)
    return rows


def ours(task, photo, arguments, output, directory):
    made = f"{directory}/made"
    os.makedirs(made, exist_ok=True)
    command = [arguments.thumbnails, f"{task['query']}&q=75", str(arguments.rounds), made, photo]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.move(glob.glob(f"{made}/*")[0], output)
    return json.loads(answer.stdout)["cpu_ms"]


def vips(task, photo, rounds, output, directory):
    """One process makes many thumbnails of links to the photograph; that of one alone is taken off."""
    links = f"{directory}/links"
    shutil.rmtree(links, ignore_errors=True)
    os.mkdir(links)
    names = [f"{links}/{number}.jpg" for number in range(rounds + 1)]
    for name in names:
        os.symlink(os.path.abspath(photo), name)
    command = ["vipsthumbnail", *task["vips"], "-o", "tn_%s.jpg[Q=75,strip]"]
    alone = cpu_of([*command, names[0]])
    together = cpu_of([*command, *names])
    shutil.move(f"{links}/tn_0.jpg", output)
    return (together - alone) / rounds * 1000


def magick(task, photo, rounds, output):
    """As zimg calls it: everything is decoded, then resized. Starting is taken off."""
    start = min(cpu_of(["convert", "-size", "1x1", "xc:", "null:"]) for _ in range(3))
    command = ["convert", photo, "-auto-orient", *task["magick"], "-quality", "75", "-strip", output]
    rounds = min(rounds, 3)
    return (sum(cpu_of(command) for _ in range(rounds)) / rounds - start) * 1000


def quality_of(path, reference):
    """SSIM and PSNR of the brightness, against the reference."""
    (width, height, found), (*size, wanted) = grey(path), grey(reference)
    if size != [width, height]:
        sys.exit(f"error: {path} is {width} × {height}, its reference {size[0]} × {size[1]}")
    error = sum((a - b) ** 2 for a, b in zip(found, wanted)) / len(found)
    return {"ssim": ssim(found, wanted, width, height), "psnr": 10 * math.log10(255**2 / error) if error else 99.0}


def grey(path):
    """Width, height and brightness of an image."""
    pnm = subprocess.run(["convert", path, "-strip", "-colorspace", "Gray", "-depth", "8", "pgm:-"], check=True, capture_output=True).stdout
    _, width, height, most = pnm.split(maxsplit=4)[:4]
    start = pnm.index(most, pnm.index(height, pnm.index(width) + len(width)) + len(height)) + len(most) + 1
    return int(width), int(height), pnm[start:]


def ssim(one, two, width, height):
    """Structural similarity (Wang et al. 2004), the mean of blocks of 8 × 8."""
    sums = []
    for top in range(0, height - 7, 8):
        for left in range(0, width - 7, 8):
            rows = [range((top + row) * width + left, (top + row) * width + left + 8) for row in range(8)]
            a = [one[place] for row in rows for place in row]
            b = [two[place] for row in rows for place in row]
            mean_a, mean_b = sum(a) / 64, sum(b) / 64
            variance_a = sum(value * value for value in a) / 64 - mean_a**2
            variance_b = sum(value * value for value in b) / 64 - mean_b**2
            both = sum(x * y for x, y in zip(a, b)) / 64 - mean_a * mean_b
            sums.append(
                (2 * mean_a * mean_b + 6.5025) * (2 * both + 58.5225)
                / ((mean_a**2 + mean_b**2 + 6.5025) * (variance_a + variance_b + 58.5225))
            )
    return mean(sums)


def geometric(values):
    values = list(values)
    return math.exp(sum(math.log(value) for value in values) / len(values))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def outcome(results):
    """The figures in short, for the experiment's page: CPU of a variant (geometric mean) and quality (mean)."""
    engines, rows, sentences = ["haulier", "libvips", "ImageMagick"], [], []
    for name, measured in results.items():
        spent = {engine: 1000 * geometric(row["cpu"][engine] for row in measured) for engine in engines}
        rows.append({"name": name, "cells": [spent[engine] for engine in engines]})
        quality = {engine: mean(row["quality"][engine]["ssim"] for row in measured) for engine in engines}
        rows.append({"name": f"{name}, SSIM", "cells": [f"{quality[engine]:.4f}" for engine in engines]})
        for engine, goal in TASKS[name]["goals"].items():
            times = spent[engine] / spent["haulier"]
            holds = "holds" if times >= goal else "does not hold"
            sentences.append(f"{name}: {times:.2f} × {engine} (at least {goal}): {holds}")
    columns = [{"name": engine, "unit": "time", "best": "least"} for engine in engines]
    note = "Every photograph: docs/experiments/zimg-engine.md."
    return {"sentences": sentences, "tables": [{"columns": columns, "rows": rows, "note": note}]}


def render(results, photos, arguments):
    lines = [
        "# Images: the engine",
        "",
        f"Variants of {len(photos)} photographs (Debian's {PACKAGE}), JPEG at quality 75, on one thread: CPU milliseconds each,"
        " starting left out. Made by `experiments/zimg/engine.py`, "
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}.",
    ]
    if arguments.conditions:
        lines += ["", arguments.conditions]
    for name, rows in results.items():
        engines = list(rows[0]["cpu"])
        lines += ["", f"## {name}", "", "| photograph | " + " | ".join(engines) + " |", "|---" * (len(engines) + 1) + "|"]
        for row in rows:
            lines.append(f"| {row['photo']} | " + " | ".join(f"{row['cpu'][engine]:.2f}" for engine in engines) + " |")
        lines += ["", "| | " + " | ".join(engines) + " |", "|---" * (len(engines) + 1) + "|"]
        for label, key in (("SSIM against the reference, mean", "ssim"), ("PSNR, mean, dB", "psnr")):
            values = (f"{mean(row['quality'][engine][key] for row in rows):.4g}" for engine in engines)
            lines.append(f"| {label} | " + " | ".join(values) + " |")
        lines.append("| bytes, sum | " + " | ".join(str(sum(row["bytes"][engine] for row in rows)) for engine in engines) + " |")
        lines.append("")
        for engine, goal in TASKS[name]["goals"].items():
            rate = geometric(row["cpu"][engine] / row["cpu"]["haulier"] for row in rows)
            word = "reached" if rate >= goal else "missed"
            lines.append(f"* {rate:.2f} × {engine} (geometric mean; the goal of {goal} is {word})")
        ours, theirs = (mean(row["quality"][engine]["ssim"] for row in rows) for engine in ("haulier", "libvips"))
        word = "no lower" if ours >= theirs else "lower"
        lines.append(f"* quality against the reference: SSIM {ours:.4f}, libvips {theirs:.4f}: {word}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
