"""Fields of Megatron-Bridge for a layout, all written out: a recipe sets most of them."""

from meshfit.engines.layout_options import Options
from meshfit.engines.megatron.fields import as_field_value
from meshfit.engines.megatron.write import layout_options as arguments
from meshfit.engines.megatron_bridge.names import key_of
from meshfit.mesh.spec import LayoutSpec


def layout_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """Every field that the layout decides.

    Raises:
        InputError: Megatron-Core has no option for a part of it.
    """
    found = arguments(layout, global_batch_size) | {"--global-batch-size": global_batch_size}
    return {key_of(name): as_field_value(name, value) for name, value in found.items()}
