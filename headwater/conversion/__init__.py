"""Converts what a user of a former release has: files in another form, and checkouts in place of lake folders."""
