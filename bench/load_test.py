"""What the generators print, and what we read in it."""

import unittest

import files
import load

AB = """
Time taken for tests:   1.234 seconds
Complete requests:      3998
Failed requests:        3
   (Connect: 0, Receive: 0, Length: 3, Exceptions: 0)
Non-2xx responses:      2
Requests per second:    3239.87 [#/sec] (mean)
"""

WRK = """
  Latency Distribution
     50%  375.00us
     75%    1.02ms
     90%    2.21ms
     99%    1.13s
  480000 requests in 3.00s, 4.50MB read
  Socket errors: connect 1, read 2, write 3, timeout 4
  Non-2xx or 3xx responses: 5
Requests/sec: 160000.00
"""


H2LOAD = """
finished in 1.25s, 18727.18 req/s, 2.50MB/s
requests: 3000 total, 3000 started, 2990 done, 2985 succeeded, 5 failed, 3 errored, 0 timeout
status codes: 2985 2xx, 0 3xx, 5 4xx, 0 5xx
"""


class Generators(unittest.TestCase):
    def test_requests_that_h2load_did_not_see_succeed_count_as_failed(self):
        read = load.parse_h2load(H2LOAD, asked=3000)
        self.assertEqual((read["done"], read["failed"], read["rps"], read["wall"]), (2985, 15, 18727.18, 1.25))
        self.assertEqual(load.parse_h2load("cannot connect", asked=7)["failed"], 7)

    def test_requests_that_ab_never_finished_count_as_failed(self):
        read = load.parse_ab(AB, asked=4000)
        self.assertEqual((read["done"], read["failed"], read["rps"], read["wall"]), (3998, 3 + 2 + 2, 3239.87, 1.234))

    def test_what_ab_says_instead_of_figures_is_kept(self):
        read = load.parse_ab("ab: Could not connect\n", asked=10)
        self.assertEqual((read["done"], read["failed"], read["note"]), (0, 10, "ab: Could not connect"))

    def test_units_of_wrk_become_milliseconds_and_bytes(self):
        read = load.parse_wrk(WRK)
        self.assertEqual((read["p50"], read["p99"], read["bytes"]), (0.375, 1130.0, 4.5 * 1024 * 1024))

    def test_every_kind_of_error_of_wrk_counts(self):
        self.assertEqual(load.parse_wrk(WRK)["failed"], 1 + 2 + 3 + 4 + 5)

    def test_output_without_json_is_a_failed_run(self):
        self.assertEqual(load.from_json("connect: refused", 7)["failed"], 7)


class Pictures(unittest.TestCase):
    def test_a_picture_has_exactly_the_size_asked_for(self):
        for size in files.SIZES["10k.png"], files.SIZES["500k.png"]:
            self.assertEqual(len(files.png(size)), size)


if __name__ == "__main__":
    unittest.main()
