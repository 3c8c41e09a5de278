import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from meshfit.breakdown import Interval, MemoryBreakdown, Prediction, TimeBreakdown
from meshfit.engines.native.files import WRITTEN_FOR, export, trained_config
from meshfit.errors import InputError
from meshfit.mesh.spec import AXES, LayoutSpec, make_layout
from meshfit.record.files import encode
from meshfit.record.schema import RunRequest
from meshfit.workload.training import PRECISIONS, DataSpec, TrainingSpec

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 16}
GPT2 = {
    "model_type": "gpt2", "vocab_size": 256, "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 64, "resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1,
}  # fmt: skip
TEXT = DataSpec(source="text", path="${stdlib}/json/*.py", seed=1)


def training(precision: str = "fp32", **changes) -> TrainingSpec:
    keys = {"sequence_length": 16, "global_batch_size": 8, "precision": PRECISIONS[precision]}
    return TrainingSpec(**keys | {"max_grad_norm": 0.1} | changes)


def script_of(layout=None, config=LLAMA, spec=None, **options) -> str:
    keys = {"weights": "/weights", "steps": 4, "prediction": None} | options
    return export(make_layout(layout or {}), config, spec or training(), **keys)["train.py"]


LAYOUTS = {
    "single": {"micro_batch_size": 8},
    "single accumulating": {},
    "ddp": {"dp_replicate": 4, "micro_batch_size": 2},
    "ddp accumulating": {"dp_replicate": 4},
    "zero1": {"dp_shard": 4, "zero_stage": 1},
    "zero1 in replicas": {"dp_shard": 2, "dp_replicate": 2, "zero_stage": 1},
    "zero2": {"dp_shard": 4, "zero_stage": 2},
    "zero3": {"dp_shard": 4},
    "hsdp": {"dp_shard": 2, "dp_replicate": 2},
    "tp": {"tp": 2},
    "tp without sp": {"tp": 2, "sp": False},
    "tp x fsdp": {"tp": 2, "dp_shard": 2},
    "tp x replicate": {"tp": 2, "dp_replicate": 2, "sp": False},
    "gpipe": {"pp": 2, "schedule": "gpipe"},
    "1f1b x replicate": {"pp": 2, "dp_replicate": 2},
    "interleaved": {"pp": 2, "vpp": 2, "dp_shard": 2},
    "uneven stages": {"pp": 2, "stage_layers": [1, 3]},
    "pp x tp": {"pp": 2, "tp": 2, "recompute": "full"},
    "pp x fsdp x tp": {"pp": 2, "dp_shard": 2, "tp": 2, "sp": False},
}

SECTIONS = {
    "DistributedDataParallel": {"ddp", "ddp accumulating", "zero1", "zero1 in replicas"},
    "ZeroRedundancyOptimizer": {"zero1", "zero1 in replicas"},
    "fully_shard": {"zero2", "zero3", "hsdp", "tp x fsdp", "interleaved", "pp x fsdp x tp"},
    "replicate_with_fsdp": {"tp x replicate", "1f1b x replicate"},
    "apply_tensor_parallel": {name for name in LAYOUTS if "tp" in name},
    "SequenceParallel": {"tp", "tp x fsdp", "pp x tp"},
    "PipelineStage": {name for name in LAYOUTS if LAYOUTS[name].get("pp")},
    "ScheduleGPipe": {"gpipe"},
    "ScheduleInterleaved1F1B": {"interleaved"},
    "gradient_checkpointing_enable": {"pp x tp"},
    "no_sync": {"ddp accumulating", "zero1", "zero1 in replicas"},
    "reduce_partial_gradients": {"tp", "tp without sp", "pp x tp"},
    "clip_gradients": {name for name in LAYOUTS if LAYOUTS[name].get("pp")},
    "set_requires_all_reduce": {"hsdp"},
    "init_device_mesh": {
        name for name in LAYOUTS if not name.startswith(("single", "ddp"))
    } - {"zero1"},
}  # fmt: skip
"""What a script may hold -> the layouts whose scripts hold it."""


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_script_holds_the_sections_of_its_layout_and_no_other(name):
    script = script_of(LAYOUTS[name])
    held = {section for section in SECTIONS if section in script}
    assert held == {section for section, layouts in SECTIONS.items() if name in layouts}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory) -> Path:
    """A folder with a script for every layout, precision, data source and start."""
    folder = tmp_path_factory.mktemp("scripts")
    variants = {
        "plain": {},
        "bf16_text": {"spec": training("bf16_mixed", data=TEXT), "weights": None},
        "tied_sgd": {
            "config": LLAMA | {"tie_word_embeddings": True},
            "spec": training(optimizer="sgd", max_grad_norm=None),
        },
        "qwen3": {"config": QWEN3},
        "mistral": {"config": LLAMA | {"model_type": "mistral"}},
    }
    for name, keys in LAYOUTS.items():
        for variant, options in variants.items():
            if variant == "tied_sgd" and "pp" in keys:
                continue
            path = folder / f"{name}_{variant}.py".replace(" ", "_")
            path.write_text(script_of(keys, **options))
    (folder / "gpt2.py").write_text(script_of({"dp_shard": 4}, config=GPT2))
    (folder / "reordered.py").write_text(script_of({"tp": 2, "pp": 2}, rank_order=("tp", "pp")))
    return folder


RUFF = (sys.executable, "-m", "ruff")


@pytest.mark.parametrize(
    "command",
    [
        (*RUFF, "format", "--check"),
        # PTH207: Path.glob takes no absolute pattern. N812: `functional as F` is PyTorch's idiom.
        (*RUFF, "check", "--extend-ignore=PTH207,N812"),
    ],
    ids=["format", "lint"],
)
def test_every_script_passes_this_projects_own_checks(scripts, command):
    config = f"--config={ROOT / 'pyproject.toml'}"
    done = subprocess.run(
        [*command, config, str(scripts)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_script_lays_its_ranks_in_another_order_where_that_is_one():
    order = ("tp", "pp", "cp", "dp_shard", "dp_replicate")
    script = script_of({"tp": 2, "dp_shard": 4}, rank_order=order)
    assert "# Ranks are laid over tp, dp_shard, the outermost first." in script
    assert "torch.arange(WORLD_SIZE).reshape((2, 4)).permute((1, 0))" in script
    assert 'mesh_dim_names=("dp_shard", "tp")' in script
    assert script_of({"dp_shard": 8}, rank_order=order) == script_of({"dp_shard": 8})


def test_no_script_imports_anything_but_the_four_packages_and_the_standard_library(scripts):
    allowed = {"torch", "transformers", "safetensors", "numpy"} | sys.stdlib_module_names
    for path in scripts.iterdir():
        tree = ast.parse(path.read_text())
        modules = {
            name
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module] if isinstance(node, ast.ImportFrom) else []
            )
        }  # fmt: skip
        assert {module.partition(".")[0] for module in modules} <= allowed


def test_a_script_stays_short_enough_to_read(scripts):
    lengths = {path.name: len(path.read_text().splitlines()) for path in scripts.iterdir()}
    assert max(lengths.values()) <= 280
    assert lengths["ddp_plain.py"] <= 110


def test_the_versions_are_those_the_tests_run_with():
    for package in ("torch", "transformers"):
        assert importlib.metadata.version(package).startswith(WRITTEN_FOR[package])


def test_a_script_names_versions_prediction_and_status_at_its_start():
    header = ast.get_docstring(ast.parse(script_of(status="names checked.")))
    assert "for torch 2.13 and transformers 5.24" in header
    assert "No prediction." in header
    assert "Status: names checked." in header


def test_the_prediction_is_shown_with_its_intervals_and_basis():
    prediction = Prediction(
        memory=MemoryBreakdown(),
        time=TimeBreakdown(),
        memory_total=Interval(low=2**30, middle=2 * 2**30, high=3 * 2**30),
        step_time=Interval(low=0.1, middle=0.2, high=0.3, basis="measured_here"),
        tokens_per_s=1.0,
        binding="compute",
        profile="native",
    )
    header = ast.get_docstring(ast.parse(script_of(prediction=prediction)))
    assert "peak memory 2.00 GiB (1.00 GiB to 3.00 GiB)" in header
    assert "step time 200 ms (100 ms to 300 ms), bound by compute; basis: measured here" in header


def test_the_config_is_trained_without_dropout_and_cache():
    config = json.loads(
        export(make_layout({}), GPT2, training(), weights=None, steps=1, prediction=None)[
            "config.json"
        ]
    )
    assert config == trained_config(GPT2)
    assert (config["resid_pdrop"], config["attn_pdrop"], config["embd_pdrop"]) == (0, 0, 0)
    assert config["use_cache"] is False


def test_the_launcher_starts_as_many_ranks_as_the_layout_has():
    layout = make_layout({"tp": 2, "dp_shard": 4})
    launch = export(layout, LLAMA, training(), weights=None, steps=1, prediction=None)["launch.sh"]
    assert "$((8 / NNODES))" in launch
    subprocess.run(["sh", "-n"], input=launch, text=True, check=True)


@pytest.mark.parametrize(
    "path", ['a "quoted" \\ path\n', "é 字 😀", "\u2028\u200b", "not UTF-8 \udc80"]
)
def test_paths_stay_inside_their_literals_whatever_characters_they_have(path):
    script = script_of(spec=training(data=replace(TEXT, path=path)), weights=f"/{path}")
    constants = {
        node.targets[0].id: node.value
        for node in ast.parse(script).body
        if isinstance(node, ast.Assign)
    }
    assert ast.literal_eval(constants["WEIGHTS"]) == f"/{path}"
    assert ast.literal_eval(constants["TEXT"]) == path


def test_relative_weights_are_looked_for_beside_the_script():
    script = script_of(weights="../weights")
    assert 'WEIGHTS = str(Path(__file__).parent / "../weights")' in script


@pytest.mark.parametrize(
    ("keys", "config", "reason"),
    [
        ({"cp": 2}, LLAMA, "no section for context or expert parallelism"),
        ({"offload": "optimizer"}, LLAMA, "no section for offload=optimizer"),
        ({"recompute": "selective"}, LLAMA, "use none or full"),
        ({"recompute": "full", "recompute_layers": 2}, LLAMA, "it recomputes layer by layer"),
        ({"pp": 2, "schedule": "zbv"}, LLAMA, "use one of gpipe, 1f1b, interleaved_1f1b"),
        ({"pp": 2, "vpp": 2, "schedule": "1f1b"}, LLAMA, "only go together"),
        ({"dp_shard": 2, "zero_stage": 0}, LLAMA, "zero_stage=0 with dp_shard=2"),
        ({"dp_shard": 2, "zero_stage": 1, "tp": 2}, LLAMA, "zero_stage=1 runs with data"),
        ({"tp": 2}, GPT2, "GPT-2 runs data parallel only"),
        ({"pp": 2}, LLAMA | {"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"dp_replicate": 3}, LLAMA, "3 x 1"),
        ({}, LLAMA | {"model_type": "mamba"}, "model_type is 'mamba'"),
    ],
)
def test_what_the_script_cannot_express_is_refused_with_the_reason(keys, config, reason):
    with pytest.raises(InputError, match=re.escape(reason)):
        script_of(keys, config=config)


@pytest.mark.parametrize("data", [DataSpec(seed=5), TEXT], ids=["synthetic", "text"])
def test_a_script_reads_the_tokens_that_the_worker_reads(data, tmp_path):
    torch = pytest.importorskip("torch")
    from meshfit.workload.corpus import open_corpus

    spec = training(data=data)
    corpus = open_corpus(data, vocab_size=256, sequence_length=16, global_batch_size=8)
    files = export(make_layout({}), LLAMA, spec, weights=None, steps=1, prediction=None)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    script = load(tmp_path / "train.py")
    windows = getattr(corpus, "num_windows", 1000)
    for step in (0, 3, windows // 8):  # the last one crosses into the second epoch of the text
        ours = torch.from_numpy(corpus.batch(step, 2, 4))
        assert torch.equal(script.read_sequences(step, 2, 4), ours)


@pytest.mark.parametrize("shape", ["file", "folder", "glob [1]"])
def test_a_script_finds_the_same_text_as_the_worker(shape, tmp_path):
    pytest.importorskip("torch")
    from meshfit.workload.corpus import open_corpus

    folder = tmp_path / "text [1]"
    (folder / "inner").mkdir(parents=True)
    for name, content in (("a.txt", b"a" * 50), ("b.txt", b""), ("inner/c.txt", b"c" * 50)):
        (folder / name).write_bytes(content)
    path = {"file": folder / "a.txt", "folder": folder, "glob [1]": tmp_path / "*" / "*.txt"}[shape]
    data = DataSpec(source="text", path=str(path))
    corpus = open_corpus(data, vocab_size=256, sequence_length=16, global_batch_size=8)
    files = export(
        make_layout({}), LLAMA, training(data=data), weights=None, steps=1, prediction=None
    )
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert load(tmp_path / "train.py").read_text().tobytes() == corpus.text.tobytes()


def load(path: Path):
    """The exported script as a module, not started."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.parent.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The scripts against the worker, on four Gloo ranks.

STEPS = 3
SHALLOW = {"num_hidden_layers": 2}  # DTensor's Python takes most of a step, layer by layer
# Clipping differs in the last bit (see files.py), which bf16 would magnify.
UNCLIPPED_BF16 = training("bf16_mixed", max_grad_norm=None)
CASES: dict[str, tuple[dict, dict, TrainingSpec]] = {
    "ddp": ({"dp_replicate": 4}, LLAMA, training(data=TEXT)),
    "hsdp_tied": (
        {"dp_shard": 2, "dp_replicate": 2},
        LLAMA | {"tie_word_embeddings": True},
        training(),
    ),
    "zero1": ({"dp_shard": 2, "dp_replicate": 2, "zero_stage": 1}, GPT2, training()),
    "tp_x_replicate": ({"tp": 2, "dp_replicate": 2, "sp": False}, QWEN3 | SHALLOW, training()),
    "interleaved_x_fsdp2": ({"pp": 2, "vpp": 2, "dp_shard": 2}, LLAMA, training()),
    "gpipe_x_tp": (
        {"pp": 2, "tp": 2, "schedule": "gpipe", "recompute": "full"},
        LLAMA | SHALLOW,
        UNCLIPPED_BF16,
    ),
}  # fmt: skip
FURTHER_CASES: dict[str, tuple[dict, dict, TrainingSpec]] = {
    "fsdp2": ({"dp_shard": 4}, LLAMA | {"torch_dtype": "bfloat16"}, training()),
    "fsdp2_bf16": ({"dp_shard": 4, "zero_stage": 2}, LLAMA, UNCLIPPED_BF16),
    "tp_x_fsdp2": ({"tp": 2, "dp_shard": 2}, LLAMA | SHALLOW, training()),
    "1f1b_x_replicate": ({"pp": 2, "dp_replicate": 2}, LLAMA, training()),
}  # fmt: skip
"""The same strategies alone or in other company: ``make test-all``."""

RANK_ORDERS = {"tp_x_replicate": ("tp", "pp", "cp", "dp_shard", "dp_replicate")}
"""Of those cases whose ranks are laid in another order than the engine's own."""


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Path:
    return run_cases(tmp_path_factory.mktemp("export"), CASES)


@pytest.fixture(scope="module")
def further_session(tmp_path_factory) -> Path:
    return run_cases(tmp_path_factory.mktemp("export"), FURTHER_CASES)


def run_cases(folder: Path, cases: dict[str, tuple[dict, dict, TrainingSpec]]) -> Path:
    """All cases run by the worker in one torchrun, and by their scripts in another."""
    for name, (keys, config, spec) in cases.items():
        write_case(folder / name, make_layout(keys), config, spec)
    for kind in ("worker", "script"):
        session = ["-m", "tests.engines.export_session", kind, str(folder)]
        torchrun(session, folder / f"{kind}.txt")
    return folder


def write_case(folder: Path, layout: LayoutSpec, config: dict, spec: TrainingSpec) -> None:
    weights, order = folder / "initial_weights", RANK_ORDERS.get(folder.name, AXES)
    common = {
        "plan_hash": "export", "candidate": folder.name, "model_config": config,
        "weights": str(weights), "layout": layout, "training": spec, "device_type": "cpu",
        "steps": STEPS, "warmup_steps": 1, "track_memory": False, "rank_order": order,
    }  # fmt: skip
    for purpose in ("weights", "measure"):
        (folder / purpose).mkdir(parents=True)
        request = RunRequest(purpose=purpose, **common)
        (folder / purpose / "request.json").write_bytes(encode(request))
    (folder / "export").mkdir()
    files = export(
        layout, config, spec, weights=str(weights), steps=STEPS, prediction=None, rank_order=order
    )
    for name, text in files.items():
        (folder / "export" / name).write_text(text)


def torchrun(arguments: list[str], log: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    run_group([*command, *arguments], log, os.environ | {"OMP_NUM_THREADS": "1"})


def run_group(command: list[str], log: Path, environment: dict[str, str]) -> None:
    """Run to the end, or end the whole process group; what it says goes into ``log``."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=ROOT,
            env=environment,
        )
        try:
            code = process.wait(timeout=300)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert code == 0, log.read_text()[-4000:]


def worker_losses(case: Path) -> list[float]:
    return json.loads((case / "measure" / "result.json").read_text())["losses"]


DIVIDED_LOGITS_BF16 = 1e-5
"""The runner sums a loss over a divided vocabulary, the script over a whole one: in another order, which
bf16 weights can carry on (``engines.native.files``)."""


def same(losses: list[float], expected: list[float], *, tolerance: float = 1e-6) -> None:
    assert len(expected) == STEPS
    assert losses == pytest.approx(expected, rel=tolerance)


@pytest.mark.dist
@pytest.mark.parametrize("name", CASES)
def test_a_script_without_meshfit_has_the_losses_of_the_run(session, name):
    assert_same_losses(session / name, CASES[name])


@pytest.mark.dist
@pytest.mark.heavy
@pytest.mark.parametrize("name", FURTHER_CASES)
def test_further_scripts_without_meshfit_have_the_losses_of_the_run(further_session, name):
    assert_same_losses(further_session / name, FURTHER_CASES[name])


def assert_same_losses(case: Path, run: tuple[dict, dict, TrainingSpec]) -> None:
    keys, _, spec = run
    script = json.loads((case / "losses.json").read_text())
    is_divided = keys.get("tp", 1) > 1 and spec.precision.name != "fp32"
    same(script, worker_losses(case), tolerance=DIVIDED_LOGITS_BF16 if is_divided else 1e-6)


@pytest.mark.dist
def test_the_losses_that_are_compared_fall(session):
    """Two runs that learn nothing would be equal as well."""
    losses = worker_losses(session / "ddp")
    assert losses[-1] < losses[0] - 0.01


@pytest.mark.dist
def test_the_launcher_trains_with_the_losses_of_the_run(session, tmp_path):
    """Started as a person would, where a ``sitecustomize`` refuses meshfit in every process."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['meshfit'] = None\n")
    losses = tmp_path / "losses.json"
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    run_group(
        ["sh", str(session / "ddp" / "export" / "launch.sh"), "--losses", str(losses)],
        tmp_path / "launch.txt",
        os.environ | {"PATH": path, "PYTHONPATH": str(tmp_path)},
    )
    same(json.loads(losses.read_text()), worker_losses(session / "ddp"))
    assert f"step {STEPS - 1}: loss" in (tmp_path / "launch.txt").read_text()


def test_the_script_knows_the_dense_families_that_the_runner_knows():
    from meshfit.engines.native.files import RUNNABLE_MODEL_TYPES
    from meshfit.run.model.transformer import FAMILIES

    assert tuple(FAMILIES) == RUNNABLE_MODEL_TYPES
