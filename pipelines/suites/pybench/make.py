"""What the code that makes missing inputs works with (`make` of the files in `regenerated/`).

Runs in a session of its own, in a folder whose `data/` is empty, with `SEED` and a seeded `random`. Nothing of
what is made comes from anybody else: tables of invented entries, and sounds of sine waves.
"""

WORDS = "amber basil cedar dune ember fjord grove heron iris jade kestrel lagoon maple nectar opal pebble quartz raven sable thistle umber violet willow yarrow zephyr".split()


def names(count, ending=""):
    """So many different names of two words."""
    pairs = random.sample([(a, b) for a in WORDS for b in WORDS if a != b], count)  # noqa: F821
    return [f"{a.title()} {b.title()}{ending}" for a, b in pairs]


def table(path, rows):
    """A table of dicts, as the ending of the path says."""
    import pandas

    frame = pandas.DataFrame(rows)
    frame.to_csv(path, index=False) if path.endswith(".csv") else frame.to_excel(path, index=False)


def films(count):
    """Rows of a list of films."""
    return [
        {
            "Movie Title": title,
            "Movie Year": random.randint(1970, 2022),  # noqa: F821
            "Runtime": random.choice([*range(78, 165, 3), 120, 120]),  # noqa: F821
            "Rating": random.choice([*(n / 10 for n in range(38, 92, 2)), 7.0, 7.0]),  # noqa: F821
            "Director": random.choice(PEOPLE),  # noqa: F821
            "Certificate": random.choice(["A", "U", "UA", "R", "PG-13"]),  # noqa: F821
            "Votes": random.randint(900, 400_000),  # noqa: F821
        }
        for title in names(count)
    ]


PEOPLE = [f"{first} {last}" for first in ("Ada", "Bo", "Cleo", "Dai", "Esme", "Finn") for last in ("Arlen", "Brandt", "Corrow", "Dunmore")]


def sound(path, seconds, parts=None):
    """Chords of two channels, or only in `parts`: pairs of start and end in seconds, with silence between them."""
    import numpy
    import soundfile

    rate, rng = 44_100, numpy.random.default_rng(random.randrange(2**32))  # noqa: F821
    time = numpy.arange(int(seconds * rate)) / rate
    beat = (time * 2).astype(int)
    notes = 110 * 2 ** (rng.choice([0, 2, 4, 5, 7, 9, 11, 12, 14, 16], (3, beat[-1] + 1)) / 12)
    swell = 0.6 + 0.4 * numpy.sin(2 * numpy.pi * time / rng.uniform(7, 11))
    fall = numpy.exp(-3 * (time * 2 - beat))
    left = sum(numpy.sin(2 * numpy.pi * note[beat] * time) for note in notes) * fall * swell
    right = sum(numpy.sin(2 * numpy.pi * note[beat] * time + 0.4) for note in notes[::-1]) * fall * swell * 0.8
    both = 0.18 * numpy.stack([left, right], axis=1)
    if parts is not None:
        heard = numpy.zeros(len(time))
        for start, end in parts:
            heard[int(start * rate) : int(end * rate)] = 1
        both = both * heard[:, None]
    soundfile.write(path, both, rate)
