"""The engines meshfit knows: one folder each, found here by name."""

from meshfit.engines.accelerate.profile import ACCELERATE
from meshfit.engines.deepspeed.profile import DEEPSPEED
from meshfit.engines.megatron.profile import MEGATRON
from meshfit.engines.native.profile import NATIVE
from meshfit.engines.sglang.profile import SGLANG
from meshfit.engines.tensorrt_llm.profile import TENSORRT_LLM
from meshfit.engines.torchtitan.profile import TORCHTITAN
from meshfit.engines.vllm.profile import VLLM
from meshfit.errors import InputError, nearest_name
from meshfit.profile import EngineProfile

PROFILES: dict[str, EngineProfile] = {
    profile.name: profile
    for profile in (NATIVE, TORCHTITAN, MEGATRON, DEEPSPEED, ACCELERATE, VLLM, SGLANG, TENSORRT_LLM)
}
"""Name -> profile, our own runner first."""


def engine_profile(name: str) -> EngineProfile:
    """The profile of an engine.

    Raises:
        InputError: no engine of that name.
    """
    if name not in PROFILES:
        nearest = nearest_name(name, PROFILES)
        hint = f"did you mean {nearest!r}?" if nearest else f"known: {', '.join(PROFILES)}"
        raise InputError(f"unknown engine {name!r}; {hint}")
    return PROFILES[name]
