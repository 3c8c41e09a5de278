"""Positions of tokens where several documents share a sequence."""

import torch
from torch import Tensor


def positions_in_documents(tokens_BS: Tensor, end_token: int) -> Tensor:
    """How far each token is from the start of its document, [B, S]."""
    places_S = torch.arange(tokens_BS.shape[1], device=tokens_BS.device)
    is_first_BS = torch.ones_like(tokens_BS, dtype=torch.bool)
    is_first_BS[:, 1:] = tokens_BS[:, :-1] == end_token
    starts_BS = torch.where(is_first_BS, places_S, 0).cummax(dim=1).values
    return places_S - starts_BS
