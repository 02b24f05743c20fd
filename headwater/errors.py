"""Errors that a person can put right."""


class UserError(Exception):
    """A person's input or set-up does not fit.

    The message names the found and the expected value, and says what to do. The command line prints the message without
    a traceback and ends with status 2.
    """
