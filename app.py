"""The CDK entry point: ``cdk synth -c env=dev``. ``-c folder=DIR`` names a lake folder other than the current one."""

import sys

import aws_cdk as cdk

from headwater.contract.reading import read_contracts
from headwater.definitions.lake_content import read_content
from headwater.environment import model as environment
from headwater.environment.rules import read_environment
from headwater.errors import UserError
from headwater.lake_folder import LakeFolder
from headwater.paths import BUILD, ROOT
from stacks import application
from stacks.assets import Assets


def main() -> int:
    """Synthesize one environment's stacks; returns 2 after an error that a person has to mend."""
    app = cdk.App()
    try:
        folder = LakeFolder.find(str(app.node.try_get_context("folder") or ""))
        name = app.node.try_get_context("env")
        if name is None:
            raise UserError(f"context env: found nothing, expected -c env={'|'.join(environment.names(folder.config))}")
        assets = Assets(ROOT, BUILD, folder)
        contracts = read_contracts(folder.contracts)
        content = read_content(folder.database, folder.queries, contracts)
        application.build(app, read_environment(str(name), folder.config), contracts, content, assets)
    except UserError as error:
        sys.stderr.write(f"Error: {error}\n")
        return 2
    app.synth()
    return 0


if __name__ == "__main__":
    sys.exit(main())
