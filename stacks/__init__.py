"""The CloudFormation stacks, a module each, and beside them the constructs that they share."""
