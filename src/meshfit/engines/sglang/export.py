"""A layout as a command of SGLang's server."""

from meshfit.engines.handover import Files
from meshfit.engines.layout_options import Options
from meshfit.engines.server_handover import SCRIPT, ServerHandover, budget_options, server_script
from meshfit.engines.sglang.write import BUDGET, layout_options
from meshfit.errors import InputError


def export(given: ServerHandover) -> Files:
    """``serve.sh``, to be started on every host.

    Raises:
        InputError: SGLang has no options for the layout.
    """
    hosts = given.num_hosts
    if hosts > 1 and given.layout.replicas > 1:
        raise InputError(
            f"SGLang starts --dp-size {given.layout.replicas} on one host; over {hosts} hosts replicas are "
            f"servers of their own: write replicas=1 and start it {given.layout.replicas} times"
        )
    options: Options = {
        **layout_options(given.layout, given.has_experts),
        **_hosts(hosts),
        **budget_options(given, BUDGET),
    }
    command = 'python3 -m sglang.launch_server --model-path "$MODEL"'
    return {SCRIPT: server_script(given, command, options)}


def _hosts(hosts: int) -> Options:
    if hosts == 1:
        return {}
    return {
        "--nnodes": hosts,
        "--node-rank": "${NODE_RANK:-0}",
        "--dist-init-addr": "${MASTER_ADDR:-localhost}:5000",
    }
