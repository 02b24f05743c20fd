"""Errors that a person can put right."""


class UserError(Exception):
    """A person's input or set-up does not fit.

    The message says found, expected, and what to do. The command line prints it without a traceback and ends with
    status 2.
    """
