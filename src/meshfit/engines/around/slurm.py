"""A Slurm job that starts a script on every host."""

from meshfit.engines.around.script import PORT, HostScript, plain_name

STATUS = "unverified: this file has not been submitted"
NOTE = "Submit it from its own folder."


def sbatch(given: HostScript) -> str:
    """The job: hosts in rank order, the first one as the meeting point.

    Where the cluster names its hosts they are asked for, and ranks lie in that order; else in Slurm's.
    """
    lines = ["#!/bin/bash", *given.header(STATUS, NOTE), *_directives(given), *_hosts(given)]
    return (
        "\n".join(lines)
        + f"""
export NNODES="${{#hosts[@]}}" HOSTS="${{hosts[*]}}"
export MASTER_ADDR="${{MASTER_ADDR:-${{hosts[0]}}}}"
export RDZV_BACKEND=static RDZV_ENDPOINT="$MASTER_ADDR:{PORT}"
srun --kill-on-bad-exit=1 bash -c '
NODE_RANK=0
for host in $HOSTS; do
    [ "$host" = "$SLURMD_NODENAME" ] && break
    NODE_RANK=$((NODE_RANK + 1))
done
export NODE_RANK
exec bash {given.script}'
"""
    )


def _directives(given: HostScript) -> list[str]:
    options = [
        f"job-name={plain_name(given.name)}",
        f"nodes={given.num_hosts}",
        "ntasks-per-node=1",
        "exclusive",
    ]
    if given.accelerator.device_type != "cpu":
        options.insert(3, f"gpus-per-node={given.devices_per_host}")
    if given.hosts:
        options.append(f"nodelist={','.join(given.hosts)}")
    return [f"#SBATCH --{option}" for option in options]


def _hosts(given: HostScript) -> list[str]:
    if given.hosts:
        return ["# In the order of ranks.", f"hosts=({' '.join(given.hosts)})"]
    return ['mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")']
