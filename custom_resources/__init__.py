"""Lambda functions behind the app's custom resources.

They run on Lambda's own Python with its own boto3 and nothing else. Each handler module has a function that takes one
step towards what CloudFormation asked for, given clients and the time. ``is_complete`` calls it with the real ones,
every half minute, until it says that all is done.
"""
