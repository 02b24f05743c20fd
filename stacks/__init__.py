"""The CloudFormation stacks, one per module, and the constructs that they share."""
