"""EMR step: write landed changes of any number of contracts into Hudi tables.

``spark-submit --py-files headwater.zip write_hudi.py --contract s3://…/orders.json … --landing s3://… --lake s3://…``.
"""

import sys

from headwater.lake.job import entry
from headwater.lake.job.landed_source import LandedSource

if __name__ == "__main__":
    sys.exit(entry.main(LandedSource(), sys.argv[1:]))
