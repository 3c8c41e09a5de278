"""A SkyPilot task that starts a script on every node."""

import re

from meshfit.engines.around.script import PORT, HostScript, label_name, manifest
from meshfit.errors import InputError

STATUS = "unverified: keys are those of SkyPilot's documentation; this file has not been launched"

NOTE = "Add what installs the engine as `setup`."


def skypilot_task(given: HostScript) -> str:
    """The task.

    Raises:
        InputError: ranks are CPU cores, which SkyPilot's accelerators are not.
    """
    if given.accelerator.device_type == "cpu":
        raise InputError(
            f"SkyPilot is asked for accelerators, and {given.accelerator.name} is a processor's core"
        )
    run = f"""\
export NNODES="$SKYPILOT_NUM_NODES" NODE_RANK="$SKYPILOT_NODE_RANK" RDZV_BACKEND=static
export MASTER_ADDR="$(echo "$SKYPILOT_NODE_IPS" | head -n 1)"
export RDZV_ENDPOINT="$MASTER_ADDR:{PORT}"
bash {given.script}
"""
    document = {
        "name": label_name(given.name),
        "workdir": ".",
        "num_nodes": given.num_hosts,
        "resources": {"accelerators": {_sky_name(given.accelerator.name): given.devices_per_host}},
        "run": run,
    }
    return manifest(given.header(STATUS, NOTE), document)


def _sky_name(name: str) -> str:
    """SkyPilot names by product, with the memory where there are two (A100 and A100-80GB)."""
    product = re.split(r"[-_ ]", name)[0]
    return "A100-80GB" if product == "A100" and "80" in name else product
