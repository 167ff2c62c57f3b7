"""Errors that are shown as one line."""


class InputError(ValueError):
    """Wrong usage or wrong input: shown as one line, exit code 2.

    The message names what is wrong, where, what was expected and what to do, on one line.
    """


class RunError(RuntimeError):
    """A run that cannot go on, such as one whose loss is NaN: shown as one line, exit code 1."""


class RunDivergedError(RunError):
    """A run that diverged for good: the same settings would come to the same."""
