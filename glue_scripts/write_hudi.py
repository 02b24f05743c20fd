"""Glue job: write changes of any number of DynamoDB tables from their Kinesis streams into Hudi tables.

A table that fails rests and begins anew, while the others go on.
"""

import sys

from headwater.lake.job import entry
from headwater.lake.job.streamed_source import StreamedSource

if __name__ == "__main__":
    sys.exit(entry.main(StreamedSource(), sys.argv[1:]))
