#!/bin/bash
# Bootstrap action of EMR, run on every node before its applications are installed: unpacks the writer's Python packages,
# with the launcher that puts them before the node's own. headwater/packaging/python_archives.py makes the archive.
#
#   unpack_python.sh s3://BUCKET/ARCHIVE REGION FOLDER
set -euo pipefail

archive="$1"
region="$2"
folder="$3"

fetched="$(mktemp)"
trap 'rm -f "$fetched"' EXIT
aws s3 cp --only-show-errors --region "$region" "$archive" "$fetched"
sudo mkdir -p "$folder"
sudo tar --extract --gzip --no-same-owner --file "$fetched" --directory "$folder"

# A cluster whose packages do not fit its processor ends here, and not when its step starts. No document says that
# Python 3.11 is on the node before the applications are.
if command -v python3.11 >/dev/null; then
    "$folder/bin/python" -c "import boto3, msgspec"
fi
