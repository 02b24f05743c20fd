"""The commands of `headwater`, one module a group."""
