"""Glue job: write changes of any number of DynamoDB tables from their Kinesis streams into Hudi tables.

If a table fails, the job tries it again after a pause, while the other tables go on.
"""

import sys

from headwater.lake.job import entry
from headwater.lake.job.streamed_source import StreamedSource

if __name__ == "__main__":
    sys.exit(entry.main(StreamedSource(), sys.argv[1:]))
