"""A layout as a command of ``vllm serve``."""

from meshfit.engines.handover import Files
from meshfit.engines.layout_options import Options
from meshfit.engines.server_handover import SCRIPT, ServerHandover, budget_options, server_script
from meshfit.engines.vllm.write import BUDGET, layout_options

_ONLY_THE_FIRST_ANSWERS = '[ "${NODE_RANK:-0}" -eq 0 ] || set -- --headless "$@"'


def export(given: ServerHandover) -> Files:
    """``serve.sh``, to be started on every host.

    Raises:
        InputError: vLLM has no options for the layout.
    """
    options: Options = {
        **layout_options(given.layout, given.has_experts),
        **_hosts(given.num_hosts),
        **budget_options(given, BUDGET),
    }
    before = [_ONLY_THE_FIRST_ANSWERS] if given.num_hosts > 1 else []
    return {SCRIPT: server_script(given, 'vllm serve "$MODEL"', options, before)}


def _hosts(hosts: int) -> Options:
    """How several hosts find each other."""
    if hosts == 1:
        return {}
    return {
        "--nnodes": hosts,
        "--node-rank": "${NODE_RANK:-0}",
        "--master-addr": "${MASTER_ADDR:-localhost}",
    }
