"""The page of the experiment: 4,039,229 bytes, as long as the one of the report of 2024.

It is a book: the King James Bible, which Debian has as a program (bible-kjv). Where that is not installed, the words are
drawn from a fixed list by a fixed sequence, as often as words occur in prose (Zipf), so that every machine codes the same
bytes; a text of your own (--text FILE, plain) makes the figures comparable with other reports.
"""

import html
import itertools
import random
import re
import shutil
import subprocess

LENGTH = 4_039_229
HEAD = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>A book</title></head><body>\n"
END = "</body></html>\n"
SYLLABLES = "ba be bo ca de di do el en fa fe ga ha he in ka la le li lo ma me mi na ne no or pa ra re ro sa se ta te to un va we".split()


def words(count=9000):
    random.seed(2024)
    made = {}
    while len(made) < count:
        made["".join(random.choices(SYLLABLES, k=random.choice((1, 2, 2, 2, 3, 3, 4))))] = True
        if len(made) < 40 and random.random() < 0.1:
            made[random.choice(("the", "and", "of", "that", "to", "in", "he", "was", "his", "with"))] = True
    return list(made)


def prose():
    known = words()
    # Added up once: 9,000 of them, and 200,000 choices.
    weights = list(itertools.accumulate(1 / (place + 2) for place in range(len(known))))
    phrases = [" ".join(random.choices(known, cum_weights=weights, k=random.randint(2, 6))) for _ in range(6000)]
    while True:
        length = random.randint(6, 24)
        sentence = []
        while len(sentence) < length:
            # Prose repeats phrases, not only words.
            if random.random() < 0.25:
                sentence += random.choice(phrases).split()
            else:
                sentence += random.choices(known, cum_weights=weights, k=3)
        yield " ".join(sentence).capitalize() + "."


def made_up():
    random.seed(2024)  # the length of the first paragraph is drawn before the words are
    sentences = prose()
    while True:
        yield " ".join(next(sentences) for _ in range(random.randint(2, 7)))


VERSE = re.compile(r"\d?[A-Za-z]+(\d+:\d+) (.+)")


def bible():
    """A paragraph for each verse, its number before it, as printed editions have it."""
    command = ["bible", "-f", "Genesis 1:1-Revelation 22:21"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
    for number, verse in VERSE.findall(lines):
        yield f"{number} {verse}"


def parts_of(text):
    with open(text, encoding="utf-8") as file:
        yield from (" ".join(part.split()) for part in file.read().split("\n\n") if part.strip())


def source(text):
    """(what the book is, its paragraphs)"""
    if text:
        return "a text given by hand", parts_of(text)
    if shutil.which("bible"):
        return "the King James Bible, a paragraph for each verse", bible()
    return "words made up by a fixed sequence", iter(())


def write(path, text=None):
    """Writes the page; what its book is."""
    name, paragraphs = source(text)
    page = bytearray(HEAD.encode())
    for paragraph in itertools.chain(paragraphs, made_up()):  # a short text is filled up
        page += f"<p>{html.escape(paragraph)}</p>\n".encode()
        if len(page) >= LENGTH:
            break
    room = LENGTH - len(END)
    cut = page[:room].decode(errors="ignore").encode()
    with open(path, "wb") as file:
        file.write(cut + b" " * (room - len(cut)) + END.encode())
    return name
