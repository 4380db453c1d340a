"""Experiment 4: whose turn it is, and which rounds are compared."""

import importlib.util
import os
import unittest

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

    def test_those_who_are_compared_follow_each_other_in_every_round(self):
        for number in range(4):
            names = [one.name for one in zstd.turns(number) if zstd.has_turn(one, number)]
            for ours, peer in zstd.PAIRS:
                if peer in names:  # nginx has brotli only where its module is installed
                    self.assertEqual(abs(names.index(ours) - names.index(peer)), 1, f"{ours}, round {number}")


if __name__ == "__main__":
    unittest.main()
