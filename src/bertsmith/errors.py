"""Errors that are the user's to mend."""


class InputError(ValueError):
    """Wrong usage or wrong input: shown as one line, exit code 2.

    The message names what is wrong, where, what was expected and what to do, on one line.
    """
