"""The CloudFormation stacks, one module and one class each."""
