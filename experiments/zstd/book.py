"""The page of the experiment: 4,039,229 bytes, as long as the one of the report of 2024.

A text of your own (--text FILE, plain and in the public domain) makes the figures comparable with other texts; without
one the words are drawn from a fixed list by a fixed sequence, as often as words occur in prose (Zipf), so that every
machine codes the same bytes.
"""

import html
import itertools
import random

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


def paragraphs(text):
    if text:
        with open(text, encoding="utf-8") as file:
            yield from (html.escape(" ".join(part.split())) for part in file.read().split("\n\n") if part.strip())
    sentences = prose()
    while True:
        yield " ".join(next(sentences) for _ in range(random.randint(2, 7)))


def write(path, text=None):
    random.seed(2024)  # the length of the first paragraph is drawn before the words are
    page = bytearray(HEAD.encode())
    for paragraph in paragraphs(text):
        page += f"<p>{paragraph}</p>\n".encode()
        if len(page) >= LENGTH:
            break
    room = LENGTH - len(END)
    cut = page[:room].decode(errors="ignore").encode()
    with open(path, "wb") as file:
        file.write(cut + b" " * (room - len(cut)) + END.encode())
