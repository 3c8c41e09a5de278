"""Keys of Megatron's YAML for a layout. A field that is left out is an error there, so that none is."""

from meshfit.engines.layout_options import Options
from meshfit.engines.megatron.fields import as_field_value
from meshfit.engines.megatron.write import layout_options as arguments
from meshfit.engines.megatron.yaml.names import key_of
from meshfit.errors import InputError
from meshfit.mesh.spec import LayoutSpec


def layout_options(layout: LayoutSpec, global_batch_size: int) -> Options:
    """Every key that the layout decides.

    Raises:
        InputError: the file has no key for a part of it.
    """
    if layout.vpp > 1:
        raise InputError(
            "Megatron's YAML says virtual stages by their layers, which a layout lacks"
        )
    found = arguments(layout, global_batch_size)
    del found["--num-virtual-stages-per-pipeline-rank"]
    found["--global-batch-size"] = global_batch_size
    return {key_of(name): as_field_value(name, value) for name, value in found.items()}
