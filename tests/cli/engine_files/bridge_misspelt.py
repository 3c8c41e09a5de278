from megatron.bridge.recipes.llama.llama3 import llama31_8b_pretrain_config
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain


def main() -> None:
    cfg = llama31_8b_pretrain_config()
    cfg.model.tensor_model_parallel_size = 3
    cfg.model.context_parallel_sizes = 1
    cfg.train.global_batch_size = 128
    pretrain(config=cfg, forward_step_func=forward_step)


if __name__ == "__main__":
    main()
