"""Models and policies that an engine does not run, or runs at a cost."""

import numpy as np

from meshfit.mesh.rule import Fact, rule


@rule(
    subject="pp",
    message=(
        "the model ties its head to the embedding (tie_word_embeddings), and pp={pp} puts them on "
        "different stages: {engine} does not synchronise the two copies"
    ),
    module="embedding",
    lists_all=True,
)
def tied_embeddings_on_one_stage(tie_word_embeddings: Fact, pp: Fact) -> Fact:
    """A tied weight on two stages needs its gradient summed between them."""
    return (tie_word_embeddings == 0) | (pp == 1)


@rule(
    subject="pp",
    message=(
        "the model ties its head to the embedding, and pp={pp} puts them on different stages: "
        "{vocab_size} x {hidden_size} weights are held on the first and on the last, and one "
        "all-reduce a step sums their gradients"
    ),
    module="embedding",
    lists_all=True,
)
def tied_embeddings_copied(
    tie_word_embeddings: Fact, pp: Fact, vocab_size: Fact, hidden_size: Fact
) -> Fact:
    """Both copies count as memory of their stage, and have to stay equal bit for bit."""
    return (tie_word_embeddings == 0) | (pp == 1)


@rule(
    subject="tp",
    message=(
        "{engine} does not split gpt2 by tp={tp}: its Conv1D layers pack q, k and v into one "
        "transposed weight, and transformers has no tensor-parallel plan for it"
    ),
    module="attention",
    lists_all=True,
)
def gpt2_without_tensor_parallel(model_type: Fact, tp: Fact) -> Fact:
    """An equal cut of a packed weight would not cut between heads."""
    return (model_type != "gpt2") | (tp == 1)


@rule(
    subject="tp",
    message=(
        "adapters of {model_type} stand beside packed matrices, which tp={tp} would cut in several pieces"
    ),
    module="attention",
    lists_all=True,
)
def adapters_beside_whole_matrices(adapters: Fact, model_type: Fact, tp: Fact) -> Fact:
    """A factor for q, k and v together has no cut that is theirs."""
    packs = (model_type == "gpt2") | (model_type == "phi3")
    return (adapters == 0) | (packs == 0) | (tp == 1)


@rule(
    subject="recompute",
    message="{engine} does not run recompute={recompute!r}",
    lists_all=True,
)
def recompute_known(recompute: Fact, recompute_options: Fact) -> Fact:
    """An engine runs the recompute policies it has."""
    return np.isin(recompute, recompute_options)


@rule(
    subject="recompute",
    message=(
        "recompute=operations would change nothing: {engine} can drop the outputs of norms before "
        "experts or latent attention, of experts' activations and of latent attention's up "
        "projections, and this model has neither experts nor latent attention"
    ),
    option_key="recompute_operations",
)
def operations_have_parts(recompute: Fact, num_experts: Fact, latent_attention: Fact) -> Fact:
    """Dense layers of Transformer Engine have their norms inside their linears, and an activation
    that no module of ``--recompute-modules`` but the whole ``mlp`` covers (Megatron-Core,
    ``transformer_layer.py`` and ``gpt_layer_specs.py``)."""
    return (recompute != "operations") | (num_experts > 0) | (latent_attention != 0)


@rule(
    subject="offload",
    message="{engine} does not run offload={offload!r}",
    lists_all=True,
)
def offload_not_run(offload: Fact) -> Fact:
    """Moving states to the host is not part of the runner yet."""
    return offload == "none"


@rule(
    subject="offload",
    message="{engine} does not run offload={offload!r}",
    lists_all=True,
)
def offload_known(offload: Fact, offload_options: Fact) -> Fact:
    """An engine moves states to the places it knows."""
    return np.isin(offload, offload_options)
