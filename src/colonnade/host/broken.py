"""A configuration file that cannot be read: where it is wrong, and why."""

TOO_LONG = "there is a number with thousands of digits"


class Broken(Exception):
    """The text breaks the rules of its language, at a place that a person can go to."""

    def __init__(self, text: str, at: int, why: str, key: str = "") -> None:
        self.line: int = text.count("\n", 0, at) + 1
        self.column: int = at - (text.rfind("\n", 0, at) + 1) + 1
        self.why = why
        # What it is about, as far as the text was understood.
        self.key: str = key
        super().__init__(f"line {self.line}, column {self.column}: {why}")
