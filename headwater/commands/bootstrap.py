"""``headwater bootstrap``: prepare an AWS account for deploys."""

from botocore.exceptions import BotoCoreError, ClientError

from headwater.commands import accounts
from headwater.commands.options import Environment as Name
from headwater.commands.options import Folder
from headwater.environment.account import refuse_another
from headwater.environment.rules import read_environment
from headwater.errors import UserError

# An empty app keeps CDK from synthesizing all stacks first, only to find their environments.
_NO_APP = ("--app", "")


def bootstrap(name: Name, *, folder: Folder) -> None:
    """Prepare the account and the region of an environment by cdk bootstrap, once for all environments there.

    The command creates CDK's stack CDKToolkit, which holds a bucket and roles for all deploys. It refuses credentials
    of another account than the environment's. `headwater deploy --env local` prepares the local AWS by itself.
    """
    environment = read_environment(name, folder.config)
    if environment.is_local:
        raise UserError(
            f"--env: found {name}, expected an environment of AWS. `headwater deploy --env {name}` prepares the local "
            "AWS by itself"
        )
    account = accounts.of(environment, folder)
    try:
        number = account.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError) as error:
        raise UserError(
            f"credentials: found {error}, expected an administrator's: configure them as for the AWS command line"
        ) from None
    refuse_another(environment, number)
    account.cdk(["bootstrap", *_NO_APP, f"aws://{number}/{environment.region}"])
