"""How single modules are cut over tensor-parallel ranks, beyond the styles that PyTorch has.

Every parameter becomes a DTensor: a clip or a fused optimizer over a mixture of DTensors and plain
tensors fails.

Legend: B micro-batch, S sequence, H hidden; "sharded on S" is sequence parallelism.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import ParallelStyle, SequenceParallel
from torch.nn import functional

_BATCH_DIM, _SEQUENCE_DIM = 0, 1


class ReplicatedParallel(ParallelStyle):
    """Every rank computes the same with a full copy; the parameters are DTensors all the same."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module, device_mesh, input_fn=self._to_dtensor, output_fn=self._to_local
        )

    @staticmethod
    def _to_dtensor(
        _module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh
    ) -> tuple[Any, ...]:
        return (_as_dtensor(inputs[0], mesh, Replicate()), *inputs[1:])

    @staticmethod
    def _to_local(_module: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Tensor:
        return output.to_local()


class TransposedParallel(ParallelStyle):
    """A linear whose weight is [in, out], as GPT-2's ``Conv1D``, cut by columns or by rows.

    By columns it takes whole inputs and gives its share of outputs; by rows the other way round,
    its outputs placed as ``output``.
    """

    def __init__(self, *, by_columns: bool, output: Placement) -> None:
        super().__init__()
        self._placements = {
            "weight": Shard(1) if by_columns else Shard(0),
            "bias": Shard(0) if by_columns else Replicate(),
        }
        self._input = Replicate() if by_columns else Shard(-1)
        self._output = Shard(-1) if by_columns else output

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(
            module, device_mesh, self._cut, input_fn=self._to_dtensor, output_fn=self._to_local
        )

    def _cut(self, _name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        _distribute(module, mesh, self._placements)

    def _to_dtensor(
        self, _module: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh
    ) -> tuple[Any, ...]:
        return (_as_dtensor(inputs[0], mesh, self._input),)

    def _to_local(self, _module: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Tensor:
        return output.redistribute(placements=[self._output]).to_local()


class SharedHeads(ParallelStyle):
    """A linear that makes fewer heads than there are ranks: each rank computes the head it shares.

    All ranks keep the whole weight. What a rank finds is its summand of the gradient: that of its
    own head, from the query heads that it has.
    """

    def __init__(self, *, heads: int, head_dim: int) -> None:
        super().__init__()
        self._heads = heads
        self._head_dim = head_dim

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _distribute(module, device_mesh, {"weight": Replicate(), "bias": Replicate()})
        ranks_of_head = device_mesh.size() // self._heads
        first = device_mesh.get_local_rank() // ranks_of_head * self._head_dim
        module.forward = partial(
            _rows_forward, module, rows=slice(first, first + self._head_dim), mesh=device_mesh
        )
        return module


def _rows_forward(module: nn.Linear, inputs: Tensor, *, rows: slice, mesh: DeviceMesh) -> Tensor:
    """The linear's outputs ``rows`` alone."""

    def own(tensor: Tensor) -> Tensor:
        return _as_dtensor(tensor, mesh, Replicate()).to_local(grad_placements=[Partial()])

    bias = None if module.bias is None else own(module.bias)[rows]
    return functional.linear(own(inputs), own(module.weight)[rows], bias)


class TokenwiseLinear(ParallelStyle):
    """A linear with a whole weight on every rank, for the tokens that a rank has.

    Under sequence parallelism (``tokens`` sharded) these are its own, and so each rank finds a summand
    of the weight's gradient. With ``gathers`` outputs of all tokens come to every rank, for its own
    heads: what it then finds of their gradient is a summand, added up on the way back.
    """

    def __init__(self, *, tokens: Placement, gathers: bool = False) -> None:
        super().__init__()
        self._tokens = tokens
        self._gathers = gathers

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _distribute(module, device_mesh, {"weight": Replicate(), "bias": Replicate()})
        module.forward = partial(
            _tokenwise_forward, module, tokens=self._tokens, gathers=self._gathers
        )
        return module


def _tokenwise_forward(
    module: nn.Linear, inputs: Tensor, *, tokens: Placement, gathers: bool
) -> Tensor:
    mesh = module.weight.device_mesh
    of_weight = [Partial()] if isinstance(tokens, Shard) else [Replicate()]

    def whole(parameter: DTensor) -> Tensor:
        return parameter.to_local(grad_placements=of_weight)

    own = inputs.to_local() if isinstance(inputs, DTensor) else inputs
    bias = None if module.bias is None else whole(module.bias)
    outputs = functional.linear(own, whole(module.weight), bias)
    if not gathers:
        return outputs
    everywhere = _as_dtensor(outputs, mesh, tokens).redistribute(placements=[Replicate()])
    return everywhere.to_local(grad_placements=[Partial()])


class OwnColumnsLinear(ParallelStyle):
    """A linear cut by columns whose input's gradient stays a summand: that of this rank's columns.

    What made the input adds the summands up (``TokenwiseLinear`` with ``gathers``).
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        _distribute(module, device_mesh, {"weight": Shard(0), "bias": Shard(0)})
        module.forward = partial(_own_columns_forward, module)
        return module


def _own_columns_forward(module: nn.Linear, inputs: Tensor) -> Tensor:
    bias = None if module.bias is None else module.bias.to_local()
    return functional.linear(inputs, module.weight.to_local(), bias)


def norm_style(between_blocks: Placement) -> ParallelStyle:
    """A norm of activations as they are between blocks."""
    if isinstance(between_blocks, Shard):
        return SequenceParallel(sequence_dim=_SEQUENCE_DIM)
    return ReplicatedParallel()


def summing_style() -> ParallelStyle:
    """A whole module on all tokens of which each rank finds a summand of every gradient: as if the
    ranks' tokens were others of one batch."""
    return SequenceParallel(sequence_dim=_BATCH_DIM, use_local_output=True)


class VocabularyParallelEmbedding(nn.Module):
    """A token embedding of which each rank holds the rows of its share of the vocabulary.

    DTensor's own operator gives every rank a gradient of the whole table; here a rank's gradient
    is that of its rows. The output is the sum over ranks, placed as ``output`` says.
    """

    def __init__(self, embedding: nn.Embedding, mesh: DeviceMesh, output: Placement) -> None:
        super().__init__()
        table = distribute_tensor(embedding.weight, mesh, [Shard(0)], src_data_rank=None)
        self.weight = nn.Parameter(table)
        self._mesh = mesh
        self._output = output
        self._num_rows, self._first_row = vocabulary_share(embedding.num_embeddings, mesh)
        self._padding_row = self._own_row(embedding.padding_idx)

    def _own_row(self, token: int | None) -> int | None:
        """Where a token's vector is among this rank's rows; None when it is elsewhere."""
        if token is None or not 0 <= token - self._first_row < self._num_rows:
            return None
        return token - self._first_row

    def forward(self, tokens_BS: Tensor) -> Tensor:
        rows_BS = tokens_BS - self._first_row
        elsewhere_BS = (rows_BS < 0) | (rows_BS >= self._num_rows)
        own_BSH = functional.embedding(
            rows_BS.masked_fill(elsewhere_BS, 0), self.weight.to_local(), self._padding_row
        ).masked_fill(elsewhere_BS.unsqueeze(-1), 0.0)
        summands_BSH = DTensor.from_local(own_BSH, self._mesh, [Partial()], run_check=False)
        hidden_BSH = summands_BSH.redistribute(placements=[self._output])
        # Sequence shards stay a DTensor: see ``sharding``.
        return hidden_BSH if isinstance(self._output, Shard) else hidden_BSH.to_local()


class SequenceParallelPositions(nn.Module):
    """A table of learned positions of which each rank reads those of its part of the sequence."""

    def __init__(self, embedding: nn.Embedding, mesh: DeviceMesh) -> None:
        super().__init__()
        table = distribute_tensor(embedding.weight, mesh, [Replicate()], src_data_rank=None)
        self.weight = nn.Parameter(table)
        self._mesh = mesh

    def forward(self, positions_1S: Tensor) -> Tensor:
        own_1S = positions_1S.chunk(self._mesh.size(), dim=_SEQUENCE_DIM)[
            self._mesh.get_local_rank()
        ]
        table = self.weight.to_local(grad_placements=[Partial()])
        return DTensor.from_local(
            functional.embedding(own_1S, table),
            self._mesh,
            [Shard(_SEQUENCE_DIM)],
            run_check=False,
        )


def vocabulary_share(vocab_size: int, mesh: DeviceMesh) -> tuple[int, int]:
    """(Rows of a vocabulary on this rank of ``mesh``, the first of them); the last ranks have fewer
    where it does not divide."""
    most = -(-vocab_size // mesh.size())
    first = min(most * mesh.get_local_rank(), vocab_size)
    return min(most, vocab_size - first), first


def _as_dtensor(tensor: Tensor, mesh: DeviceMesh, placement: Placement) -> DTensor:
    if isinstance(tensor, DTensor):
        return tensor
    return DTensor.from_local(tensor, mesh, [placement], run_check=False)


def _distribute(module: nn.Module, mesh: DeviceMesh, placements: dict[str, Any]) -> None:
    """Replace a module's own parameters by DTensors, by name."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        shards = distribute_tensor(parameter, mesh, [placements[name]], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(shards, requires_grad=parameter.requires_grad))
