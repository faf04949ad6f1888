"""Wrong candidates made from a passing one, by kind of check. Each is truly wrong for its check."""


class Mutant:
    """What differs from the passing candidate: files (path → bytes, None: removed), answer, claims."""

    def __init__(self, name, files=None, answer=None, claims=None, alone=False):
        self.name, self.files, self.answer, self.claims = name, files or {}, answer, claims
        self.alone = alone  # starts from nothing instead of from the passing candidate
