"""Lambda functions behind the app's custom resources.

They run on Lambda's own Python with its own boto3 and nothing else. Each handler module has a function that takes one
step towards the resource that CloudFormation asked for, given clients and the time. Every half minute, ``is_complete``
calls this function with the real clients and time, until the request is done.
"""
