"""The pages of docs/reference that are made from the code itself."""
