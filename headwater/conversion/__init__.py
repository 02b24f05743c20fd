"""Converts the files of a former release's users: files in an older form, and checkouts in place of lake folders."""
