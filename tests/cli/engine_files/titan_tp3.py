from torchtitan.models.llama3.config_registry import llama3_8b
from torchtitan.trainer import Trainer


def cand() -> Trainer.Config:
    config = llama3_8b()
    config.training.local_batch_size = 2
    config.training.seq_len = 8192
    config.parallelism.tensor_parallel_degree = 3
    config.activation_checkpoint = FullAC.Config()
    return config
