"""In place of the library that only Glue has, as far as the job's script calls it."""
