"""Engines that a layout can be handed over to, by name."""

from collections.abc import Callable, Mapping

from meshfit.engines.accelerate.export import export as export_accelerate
from meshfit.engines.deepspeed.export import export as export_deepspeed
from meshfit.engines.handover import Files, Handover
from meshfit.engines.megatron.export import export as export_megatron
from meshfit.engines.megatron_bridge.export import export as export_megatron_bridge
from meshfit.engines.megatron_bridge.export import released as released_megatron_bridge
from meshfit.engines.server_handover import ServerHandover
from meshfit.engines.sglang.export import export as export_sglang
from meshfit.engines.torchtitan.export import export as export_torchtitan
from meshfit.engines.vllm.export import export as export_vllm

EXPORTS: Mapping[str, Callable[[Handover], Files]] = {
    "torchtitan": export_torchtitan,
    "megatron": export_megatron,
    "megatron_bridge": export_megatron_bridge,
    "deepspeed": export_deepspeed,
    "accelerate": export_accelerate,
}

SERVER_EXPORTS: Mapping[str, Callable[[ServerHandover], Files]] = {
    "vllm": export_vllm,
    "sglang": export_sglang,
}
"""Those that serve."""

PROFILE_OF: Mapping[str, str] = {"megatron_bridge": "megatron"}
"""Exports whose layouts are those of another engine's profile, whose library they drive."""

RELEASED: Mapping[str, Callable[[Handover], Handover]] = {
    "megatron_bridge": released_megatron_bridge,
}
"""How what such an export is given names its own release."""
