"""The files that every server serves."""

import unittest

import files


class Pictures(unittest.TestCase):
    def test_a_picture_has_exactly_the_size_asked_for(self):
        for size in files.SIZES["10k.png"], files.SIZES["500k.png"]:
            self.assertEqual(len(files.png(size)), size)


if __name__ == "__main__":
    unittest.main()
