"""Experiment 4: whose turn it is, which rounds are compared, and the page."""

import importlib.util
import os
import tempfile
import unittest
from unittest import mock

# By its path: there is a run.py here too.
SPEC = importlib.util.spec_from_file_location("zstd_run", f"{os.path.dirname(os.path.abspath(__file__))}/zstd/run.py")
zstd = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(zstd)


def rounds(spent):
    return [{"round": number, "server": cpu, "php": 1.0} for number, cpu in spent.items()]


class Rounds(unittest.TestCase):
    def test_only_what_was_measured_in_the_same_round_is_compared(self):
        results = {"ours": rounds({0: 1.0, 3: 5.0}), "peer": rounds({0: 3.0, 1: 99.0, 2: 99.0, 3: 5.0})}
        self.assertEqual(zstd.ratios_of(results, "ours", "peer"), [0.5, 1.0])
        self.assertEqual(zstd.ratios_of(results, "ours", "nobody"), [])

    def test_those_who_are_compared_are_in_one_table(self):
        tables = zstd.tables(list(zstd.contestants()))
        for ours, peer in zstd.PAIRS:
            of = next(names for names in ([one.name for one in of] for of in tables.values()) if ours in names)
            if any(one.name == peer for one in zstd.contestants()):  # nginx has brotli only where its module is installed
                self.assertIn(peer, of)

    def test_slices_of_one_round_keep_their_order(self):
        spent = {"cpu_us_per_request": 5000.0, "php_cpu_us_per_request": 1000.0}
        slices = [dict(round=0, requests=4, requests_per_second=100.0, server=spent) for _ in range(2)]
        slices.append(dict(round=1, requests=0, requests_per_second=0.0, server=None))
        rows = zstd.rows_of({"slices": slices, "total": {"requests": 8, "bytes": {"body": 80}}})
        self.assertEqual([row["round"] for row in rows], [(0, 0), (0, 1)])
        self.assertEqual(rows[0], dict(ms=10.0, server=4.0, php=1.0, size=10.0, round=(0, 0)))


class Table(unittest.TestCase):
    def test_it_says_what_was_compressed(self):
        rows = [{"size": 1000, "ms": 1.0, "server": 0.5, "php": 0.25, "round": 0}]
        table = zstd.table({"haulier zstd 3": rows}, "a book of one page")
        self.assertEqual(table["note"], "The book is a book of one page.")
        self.assertEqual(table["rows"], [{"name": "haulier zstd 3", "cells": [1000, 1000.0, 500.0, 250.0, 750.0]}])


class Page(unittest.TestCase):
    """As long as the page of the report, and the same on every machine."""

    def page(self, *arguments):
        with tempfile.TemporaryDirectory() as place:
            name = zstd.book.write(f"{place}/book.html", *arguments)
            with open(f"{place}/book.html", "rb") as file:
                return name, file.read()

    def test_the_words_are_the_same_every_time(self):
        with mock.patch("shutil.which", return_value=None):
            name, page = self.page()
            self.assertEqual(self.page(), (name, page))
        self.assertIn("made up", name)
        self.assertEqual(len(page), 4_039_229)
        self.assertTrue(page.endswith(b"</body></html>\n"))

    def test_a_text_of_your_own_comes_first_and_is_filled_up(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("One <is>\nhere.\n\nTwo & more.\n")
            text.flush()
            _, page = self.page(text.name)
        self.assertIn(b"<p>One &lt;is&gt; here.</p>\n<p>Two &amp; more.</p>\n<p>", page)
        self.assertEqual(len(page), 4_039_229)

    @unittest.skipUnless(zstd.book.shutil.which("bible"), "needs bible-kjv")
    def test_the_book_has_its_verses(self):
        name, page = self.page()
        self.assertIn("King James", name)
        self.assertIn(b"<p>1:1 In the beginning God created the heaven and the earth.</p>", page)
        self.assertGreater(page.count(b"<p>"), 25_000)
        self.assertEqual(len(page), 4_039_229)


if __name__ == "__main__":
    unittest.main()
