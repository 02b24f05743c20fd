"""The CDK entry point: ``cdk synth -c env=dev``."""

import sys

import aws_cdk as cdk

from headwater.contract.reading import read_contracts
from headwater.environment import model as environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.paths import BUILD, CONFIG, CONTRACTS, ROOT
from stacks import application
from stacks.assets import Assets


def main() -> int:
    """Synthesize one environment's stacks; 2 where a person has something to put right."""
    app = cdk.App()
    try:
        name = app.node.try_get_context("env")
        if name is None:
            raise UserError(f"context env: found nothing, expected -c env={'|'.join(environment.names(CONFIG))}")
        application.build(app, read_environment(str(name), CONFIG), read_contracts(CONTRACTS), Assets(ROOT, BUILD))
    except UserError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
