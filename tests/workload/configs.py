"""Configs of small models that several tests share."""

HYBRID = {
    "model_type": "bamba",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "attn_layer_indices": [2],
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "mamba_n_heads": 16,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 16,
    "mamba_expand": 2,
}
"""State-space layers, and attention in one of four."""
