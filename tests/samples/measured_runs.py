"""Small tables in the formats that are imported, typed in for the tests."""

SFTTRAINER_HEADER = (
    "model_name",
    "method",
    "gpu_model",
    "number_nodes",
    "number_gpus",
    "tokens_per_sample",
    "batch_size",
    "dataset_tokens_per_second",
    "train_runtime",
    "is_valid",
)

SFTTRAINER_ROW = {
    "model_name": "granite-3.1-8b-instruct",
    "method": "full",
    "gpu_model": "NVIDIA-A100-SXM4-80GB",
    "number_nodes": "1.0",
    "number_gpus": "4.0",
    "tokens_per_sample": "4096.0",
    "batch_size": "8.0",
    "dataset_tokens_per_second": "10000.5",
    "train_runtime": "120.0",
    "is_valid": "1.0",
}

FMS_ROW = {
    "framework_config": "none",
    "mem_nvidia_mem_reserved": "44382",
    "mem_peak_torch_mem_alloc_in_bytes": "36225939968",
    "model_name_or_path": "mistralai/Mistral-7B-v0.1",
    "num_gpus": "2",
    "peft_method": "",
    "per_device_train_batch_size": "2",
    "r": "",
    "torch_dtype": "bfloat16",
    "train_runtime": "300.0",
    "train_samples_per_second": "1.356",
    "train_tokens_per_second": "2777.18",
}

FMS_MIXTURE_ROW = {
    "framework_config": "moe-scattermoe-granite-ep2-padding-free-foak",
    "gradient_accumulation_steps": "4",
    "mem_nvidia_mem_reserved": "29771",
    "model_name_or_path": "ibm-granite/granite-3.0-3b-a800m-instruct",
    "num_gpus": "4",
    "per_device_train_batch_size": "8",
    "torch_dtype": "bfloat16",
    "train_runtime": "170.0",
    "train_samples_per_second": "72.899",
    "train_tokens_per_second": "3531.042",
}

LITGPT_2023_ROW = {
    "method": "lora",
    "model": "StableLM Alpha",
    "size": "3B",
    "quantization": "bnb.nf4",
    "micro_batch_size": "2",
    "number_gpus": "1",
    "minutes_per_1k_iterations": "2.0",
    "max_gpu_ram_gb": "9.5",
    "status": "ok",
    "gpu_model": "NVIDIA A100-SXM4-40GB",
}

LITGPT_HUB_ROW = {
    "model": "tiny-llama",
    "method": "full",
    "epochs": "3",
    "max_seq_len": "512",
    "micro_batch_size": "4",
    "number_gpus": "1",
    "training_runtime_min": "10.0",
    "peak_memory_gb": "14.1",
    "status": "ok",
    "gpu_model": "NVIDIA A10G-24GB",
}

MS_SWIFT_ROW = {
    "model": "qwen-72b-chat",
    "method": "lora",
    "max_seq_len": "2048",
    "batch_size": "1",
    "precision_or_quant": "bf16",
    "number_gpus": "2",
    "flash_attn": "1",
    "grad_checkpointing": "0",
    "lora_rank": "8",
    "lora_target": "ALL",
    "grad_accum": "16",
    "samples_per_second": "0.5",
    "gpu_memory_gib": "70.0+75.0",
    "status": "ok",
}

NEMO_ROW = {
    "model": "LLAMA2-70B",
    "task": "SFT",
    "number_gpus": "16",
    "gbs": "32",
    "mbs": "1",
    "seq_len": "4096",
    "tp": "4",
    "pp": "2",
    "precision": "fp8",
    "tokens_per_sec_per_gpu": "1800",
    "source": "NVIDIA/NeMo performance_summary.md",
}

VECTORLM_ROW = {
    "model": "Llama-2-7b-hf",
    "method": "full_rank",
    "gpu_model": "Tesla T4",
    "number_gpus": "8",
    "batch_size": "8",
    "tokens_per_second_total": "400.5",
    "status": "ok",
}


def write_csv(path, rows):
    """Write rows (dicts with one set of columns) as a CSV file; returns its path."""
    header = list(rows[0])
    lines = [",".join(header), *(",".join(row[name] for name in header) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path
