#!/usr/bin/env python3
"""Times whole steps of Hugging Face models in PyTorch and records their peak memory and their kernels: the truth that whole-step predictions are judged by.

    torch_steps.py OUT                       # every run of RUNS
    torch_steps.py OUT --more                # the second list
    torch_steps.py OUT --later               # the third list
    torch_steps.py OUT --only llama,bert     # runs whose id contains one of the words
    torch_steps.py OUT --budget 480          # no new run after so many seconds

Written into OUT: steps.csv (one row a run), kernels.jsonl.gz (per run the GPU kernels of one profiled step by PyTorch operator, input sizes and kernel name), traces.tar (whole profiler
traces of the runs marked `trace`), configs.json (the model of each run as a Hugging Face config).

Weights are random; the sizes alone matter. Dropout is off. A step is forward, backward, fused AdamW, zero_grad(set_to_none). Each step is timed from an idle GPU to an idle GPU (`step_ms`, median;
`spread_ms`, half the distance of the quartiles) and as a run of steps without a wait between them (`stream_ms`). `host_ms` is the time after which the host has issued a step.
"""
import argparse
import csv
import gc
import gzip
import json
import os
import statistics
import sys
import tarfile
import time

import torch
import transformers

MODELS = {}


def model(name, cls, **config):
    MODELS[name] = (cls, config)


def llama(name, hidden, layers, heads, kv, ffn, vocab, cls="Llama", **more):
    model(name, cls, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, intermediate_size=ffn, vocab_size=vocab, **more)


model("gpt2", "GPT2", n_embd=768, n_layer=12, n_head=12, vocab_size=50257)
model("gpt2-padded", "GPT2", n_embd=768, n_layer=12, n_head=12, vocab_size=50304)
model("gpt2-medium", "GPT2", n_embd=1024, n_layer=24, n_head=16, vocab_size=50257)
model("gpt2-large", "GPT2", n_embd=1280, n_layer=36, n_head=20, vocab_size=50304)
model("gpt2-xl", "GPT2", n_embd=1600, n_layer=48, n_head=25, vocab_size=50257)
llama("llama-3.2-1b", 2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True, head_dim=64, max_position_embeddings=8192)
llama("llama-3.2-3b", 3072, 28, 24, 8, 8192, 128256, tie_word_embeddings=True, head_dim=128, max_position_embeddings=8192)
llama("llama-3-8b", 4096, 32, 32, 8, 14336, 128256, head_dim=128, max_position_embeddings=8192)
llama("llama-160m", 768, 12, 12, 12, 3072, 32000)
llama("qwen2.5-0.5b", 896, 24, 14, 2, 4864, 151936, cls="Qwen2", tie_word_embeddings=True)
llama("qwen2.5-1.5b", 1536, 28, 12, 2, 8960, 151936, cls="Qwen2", tie_word_embeddings=True)
llama("qwen3-0.6b", 1024, 28, 16, 8, 3072, 151936, cls="Qwen3", tie_word_embeddings=True, head_dim=128)
llama("mistral-7b", 4096, 32, 32, 8, 14336, 32000, cls="Mistral", head_dim=128, sliding_window=None)
llama("gemma2-2b", 2304, 26, 8, 4, 9216, 256000, cls="Gemma2", head_dim=256, tie_word_embeddings=True)
llama("gemma3-1b", 1152, 26, 4, 1, 6912, 262144, cls="Gemma3", head_dim=256, tie_word_embeddings=True)
llama("olmoe-1b-7b", 2048, 16, 16, 16, 1024, 50304, cls="Olmoe", num_experts=64, num_experts_per_tok=8)
llama("mixtral-4l", 4096, 4, 32, 8, 14336, 32000, cls="Mixtral", num_local_experts=8, num_experts_per_tok=2)
model("bert-base", "Bert", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=30522)
model("bert-large", "Bert", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, vocab_size=30522)
model("roberta-base", "Roberta", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=50265, max_position_embeddings=514)
model("pythia-410m", "GPTNeoX", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, vocab_size=50304, max_position_embeddings=2048)
model("pythia-1.4b", "GPTNeoX", hidden_size=2048, num_hidden_layers=24, num_attention_heads=16, intermediate_size=8192, vocab_size=50304, max_position_embeddings=2048)
model("opt-125m", "OPT", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, ffn_dim=3072, vocab_size=50272)
model("opt-1.3b", "OPT", hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, ffn_dim=8192, vocab_size=50272)
model("phi-1.5", "Phi", hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, intermediate_size=8192, vocab_size=51200)
model("bloom-560m", "Bloom", hidden_size=1024, n_layer=24, n_head=16, vocab_size=250880)
model("vit-large", "ViT", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
model("t5-base", "T5", d_model=768, d_ff=3072, num_layers=12, num_heads=12, d_kv=64, vocab_size=32128, feed_forward_proj="relu", decoder_start_token_id=0)
model("llama-12b", "Llama", hidden_size=5120, num_hidden_layers=4, num_attention_heads=40, num_key_value_heads=8, intermediate_size=13824, vocab_size=32000)

llama("phi3-mini", 3072, 32, 32, 32, 8192, 32064, cls="Phi3", pad_token_id=0)
llama("qwen3-1.7b", 2048, 28, 16, 8, 6144, 151936, cls="Qwen3", tie_word_embeddings=True, head_dim=128)
llama("qwen2.5-3b", 2048, 36, 16, 2, 11008, 151936, cls="Qwen2", tie_word_embeddings=True)
llama("tinyllama", 2048, 22, 32, 4, 5632, 32000)
llama("smollm-360m", 960, 32, 15, 5, 2560, 49152, tie_word_embeddings=True)
llama("gemma-2b", 2048, 18, 8, 1, 16384, 256000, cls="Gemma", head_dim=256, tie_word_embeddings=True)
llama("qwen3-moe-6l", 2048, 6, 32, 4, 6144, 151936, cls="Qwen3Moe", head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, norm_topk_prob=True)
llama("gpt-oss-4l", 2880, 4, 64, 8, 2880, 201088, cls="GptOss", head_dim=64, num_local_experts=32, num_experts_per_tok=4)
model("pythia-160m", "GPTNeoX", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=50304, max_position_embeddings=2048)
model("pythia-2.8b", "GPTNeoX", hidden_size=2560, num_hidden_layers=32, num_attention_heads=32, intermediate_size=10240, vocab_size=50304, max_position_embeddings=2048)
model("opt-350m-wide", "OPT", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, ffn_dim=4096, vocab_size=50272)
model("falcon-1b", "Falcon", hidden_size=2048, num_hidden_layers=24, num_attention_heads=32, vocab_size=50304, multi_query=False, parallel_attn=False, alibi=False, new_decoder_architecture=False)
model("gpt2-odd", "GPT2", n_embd=1536, n_layer=16, n_head=24, vocab_size=40479)
model("vit-base", "ViT", hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072)
model("whisper-small", "Whisper", d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=51865)

model("distilgpt2", "GPT2", n_embd=768, n_layer=6, n_head=12, vocab_size=50257)
llama("llama-2-7b-8l", 4096, 8, 32, 32, 11008, 32000)
llama("smollm-135m", 576, 30, 9, 3, 1536, 49152, tie_word_embeddings=True)
llama("qwen2.5-7b", 3584, 28, 28, 4, 18944, 152064, cls="Qwen2")
llama("qwen3-4b", 2560, 36, 32, 8, 9728, 151936, cls="Qwen3", tie_word_embeddings=True, head_dim=128)
llama("olmo2-1b", 2048, 16, 16, 16, 8192, 100352, cls="Olmo2")
llama("starcoder2-3b", 3072, 30, 24, 2, 12288, 49152, cls="Starcoder2", sliding_window=None)
llama("mixtral-2l", 4096, 2, 32, 8, 14336, 32000, cls="Mixtral", num_local_experts=8, num_experts_per_tok=2)
model("roberta-large", "Roberta", hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096, vocab_size=50265, max_position_embeddings=514)
model("pythia-1b", "GPTNeoX", hidden_size=2048, num_hidden_layers=16, num_attention_heads=8, intermediate_size=8192, vocab_size=50304, max_position_embeddings=2048)
model("opt-2.7b", "OPT", hidden_size=2560, num_hidden_layers=32, num_attention_heads=32, ffn_dim=10240, vocab_size=50272, word_embed_proj_dim=2560)
model("bloom-1b1", "Bloom", hidden_size=1536, n_layer=24, n_head=16, vocab_size=250880)
model("phi-2", "Phi", hidden_size=2560, num_hidden_layers=32, num_attention_heads=32, intermediate_size=10240, vocab_size=51200, partial_rotary_factor=0.4)
model("vit-huge", "ViT", hidden_size=1280, num_hidden_layers=32, num_attention_heads=16, intermediate_size=5120)
model("t5-large", "T5", d_model=1024, d_ff=4096, num_layers=24, num_heads=16, d_kv=64, vocab_size=32128, feed_forward_proj="relu", decoder_start_token_id=0)
model("whisper-base", "Whisper", d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, vocab_size=51865)

CONFIGS = {"Gemma3": "Gemma3TextConfig"}
CLASSES = {"GPT2": "GPT2LMHeadModel", "Bert": "BertForMaskedLM", "Roberta": "RobertaForMaskedLM", "ViT": "ViTForImageClassification", "T5": "T5ForConditionalGeneration", "Whisper": "WhisperForConditionalGeneration"}


def run(model_name, phase="train", batch=1, seq=1024, attention="sdpa", precision="pure", recompute=False, compiled=False, context=0, trace=False, fit=False, optimizer="fused", long=False):
    return dict(model=model_name, phase=phase, batch=batch, seq=seq, attention=attention, precision=precision, recompute=recompute, compiled=compiled, context=context, trace=trace, fit=fit,
                optimizer=optimizer, long=long)


# `fit` marks the runs whose kernels may be looked at while the model is built; the others are kept for judging it.
RUNS = [
    run("gpt2", batch=16, seq=1024, trace=True, fit=True),
    run("llama-3.2-1b", batch=8, seq=2048, trace=True, fit=True),
    run("bert-large", batch=32, seq=512, trace=True, fit=True),
    run("gpt2", batch=8, seq=1024, precision="mixed", fit=True, trace=True),
    run("gpt2", batch=16, seq=1024, attention="eager"),
    run("gpt2", batch=8, seq=512),
    run("gpt2-padded", batch=16, seq=1024),
    run("gpt2-medium", batch=8, seq=1024),
    run("gpt2-medium", batch=8, seq=1024, precision="mixed"),
    run("gpt2-large", batch=4, seq=1024),
    run("gpt2-xl", batch=4, seq=1024, recompute=True),
    run("gpt2", phase="forward", batch=32, seq=1024),
    run("llama-3.2-1b", batch=4, seq=4096),
    run("llama-3.2-1b", batch=8, seq=1024, precision="mixed", trace=True),
    run("llama-3.2-1b", batch=8, seq=2048, recompute=True),
    run("llama-3.2-1b", batch=2, seq=2048, attention="eager"),
    run("llama-3.2-3b", batch=2, seq=2048, long=True),
    run("llama-3-8b", batch=1, seq=2048),
    run("llama-3-8b", phase="forward", batch=2, seq=2048, trace=True),
    run("llama-160m", batch=32, seq=512),
    run("llama-12b", batch=4, seq=2048),
    run("qwen2.5-0.5b", batch=8, seq=1024),
    run("qwen2.5-1.5b", batch=4, seq=2048),
    run("qwen3-0.6b", batch=8, seq=1024),
    run("mistral-7b", batch=1, seq=2048),
    run("mistral-7b", phase="forward", batch=1, seq=4096),
    run("gemma2-2b", batch=2, seq=1024, attention="eager"),
    run("gemma3-1b", batch=4, seq=1024),
    run("bert-base", batch=32, seq=512),
    run("bert-large", batch=16, seq=512, precision="mixed"),
    run("bert-large", phase="forward", batch=64, seq=512),
    run("bert-base", batch=64, seq=128, attention="eager"),
    run("roberta-base", batch=16, seq=512),
    run("pythia-410m", batch=8, seq=1024),
    run("pythia-1.4b", batch=4, seq=2048),
    run("pythia-410m", batch=8, seq=1024, precision="mixed"),
    run("opt-125m", batch=16, seq=1024),
    run("opt-1.3b", batch=4, seq=2048),
    run("phi-1.5", batch=4, seq=1024),
    run("bloom-560m", batch=4, seq=1024),
    run("olmoe-1b-7b", batch=2, seq=1024),
    run("olmoe-1b-7b", phase="forward", batch=4, seq=1024),
    run("mixtral-4l", batch=2, seq=1024),
    run("vit-large", batch=64, seq=197),
    run("t5-base", batch=16, seq=512),
] + [run(name, phase="prefill", batch=b, seq=s) for name, b, s in (
    ("llama-3.2-1b", 1, 512), ("llama-3.2-1b", 1, 2048), ("llama-3.2-1b", 4, 1024), ("llama-3.2-1b", 16, 1024), ("llama-3.2-1b", 32, 512),
    ("llama-3-8b", 1, 512), ("llama-3-8b", 1, 2048), ("llama-3-8b", 4, 1024), ("llama-3-8b", 16, 1024), ("llama-3-8b", 32, 512))] + [
    run(name, phase="decode", batch=b, context=c, seq=1) for name, b, c in (("llama-3.2-1b", 1, 1024), ("llama-3-8b", 1, 2048), ("llama-3-8b", 32, 2048), ("llama-3-8b", 64, 4096))] + [
    run(name, phase=phase, batch=1, seq=16) for name, phase in (("gpt2", "train"), ("llama-3.2-1b", "train"), ("bert-large", "train"), ("pythia-410m", "train"), ("opt-125m", "train"),
                                                                 ("gpt2", "forward"), ("llama-3-8b", "forward"))] + [
    run("gpt2", batch=16, seq=1024, compiled=True, fit=True, trace=True),
    run("llama-3.2-1b", batch=4, seq=2048, compiled=True),
    run("bert-base", batch=32, seq=512, compiled=True),
    run("qwen2.5-0.5b", batch=8, seq=1024, compiled=True),
    run("gpt2-medium", batch=8, seq=1024, compiled=True, precision="mixed"),
]

# A second list, measured after the model was built and for judging alone: other models, sizes and batches, and a few of the first list again for the noise between two sessions.
MORE = [
    run("gpt2", batch=16, seq=1024),
    run("llama-3.2-1b", batch=8, seq=2048),
    run("bert-large", phase="forward", batch=64, seq=512),
    run("tinyllama", batch=8, seq=1024),
    run("tinyllama", batch=4, seq=2048, precision="mixed"),
    run("smollm-360m", batch=16, seq=1024),
    run("phi3-mini", batch=1, seq=2048),
    run("phi3-mini", phase="forward", batch=4, seq=1024),
    run("qwen3-1.7b", batch=4, seq=1024),
    run("qwen2.5-3b", batch=2, seq=2048, recompute=True),
    run("gemma-2b", batch=2, seq=1024),
    run("gpt2-odd", batch=8, seq=768),
    run("gpt2-odd", batch=8, seq=768, attention="eager"),
    run("gpt2-large", batch=8, seq=512, precision="mixed"),
    run("gpt2-medium", phase="forward", batch=16, seq=512, attention="eager"),
    run("llama-12b", batch=2, seq=4096, recompute=True),
    run("pythia-160m", batch=32, seq=1024),
    run("pythia-2.8b", batch=2, seq=2048),
    run("opt-350m-wide", batch=16, seq=512),
    run("opt-1.3b", batch=4, seq=1024, precision="mixed"),
    run("bloom-560m", batch=4, seq=1024, attention="eager"),
    run("falcon-1b", batch=4, seq=1024),
    run("bert-base", batch=128, seq=256),
    run("roberta-base", phase="forward", batch=128, seq=256),
    run("vit-base", batch=256, seq=197),
    run("t5-base", batch=16, seq=512),
    run("whisper-small", phase="forward", batch=16, seq=1),
    run("qwen3-moe-6l", batch=2, seq=1024),
    run("gpt-oss-4l", batch=1, seq=1024, attention="eager"),
    run("mixtral-4l", phase="forward", batch=4, seq=1024),
    run("mistral-7b", phase="prefill", batch=8, seq=512),
    run("llama-3.2-3b", phase="prefill", batch=8, seq=1024),
    run("qwen2.5-1.5b", phase="prefill", batch=16, seq=512),
    run("tinyllama", batch=8, seq=1024, compiled=True),
    run("opt-125m", batch=32, seq=512, compiled=True),
]


# A third list, measured after the rules had been corrected with the second one in view.
LATER = [
    run("distilgpt2", batch=32, seq=1024),
    run("gpt2-large", phase="forward", batch=8, seq=1024),
    run("gpt2-padded", batch=16, seq=1024, precision="mixed"),
    run("gpt2-medium", batch=4, seq=1024, attention="eager"),
    run("llama-2-7b-8l", batch=2, seq=2048, recompute=True),
    run("llama-3.2-1b", batch=4, seq=2048),
    run("llama-3.2-3b", batch=1, seq=4096),
    run("smollm-135m", batch=16, seq=2048),
    run("tinyllama", phase="forward", batch=16, seq=1024),
    run("tinyllama", batch=4, seq=1024, attention="eager"),
    run("qwen2.5-1.5b", batch=8, seq=1024, precision="mixed"),
    run("qwen3-4b", batch=1, seq=2048),
    run("qwen2.5-7b", phase="forward", batch=4, seq=1024),
    run("mistral-7b", batch=2, seq=1024, recompute=True),
    run("gemma-2b", phase="forward", batch=8, seq=1024),
    run("gemma3-1b", batch=8, seq=2048),
    run("bert-large", batch=64, seq=128),
    run("bert-base", phase="forward", batch=256, seq=128),
    run("roberta-large", batch=16, seq=512, precision="mixed"),
    run("pythia-1b", batch=8, seq=1024),
    run("pythia-410m", phase="forward", batch=32, seq=1024),
    run("opt-2.7b", batch=2, seq=2048),
    run("bloom-1b1", batch=2, seq=1024, attention="eager"),
    run("falcon-1b", batch=8, seq=1024),
    run("phi-2", batch=1, seq=2048),
    run("olmo2-1b", batch=4, seq=2048),
    run("starcoder2-3b", phase="forward", batch=2, seq=2048),
    run("olmoe-1b-7b", batch=4, seq=512),
    run("mixtral-2l", batch=4, seq=1024),
    run("qwen3-moe-6l", phase="forward", batch=4, seq=1024),
    run("vit-huge", batch=32, seq=197),
    run("t5-large", batch=8, seq=512),
    run("whisper-base", phase="forward", batch=32, seq=1),
    run("gpt2-medium", batch=8, seq=1024, compiled=True),
    run("llama-3.2-1b", batch=8, seq=2048, compiled=True),
    run("qwen2.5-7b", phase="prefill", batch=4, seq=1024),
    run("llama-3-8b", phase="prefill", batch=2, seq=4096),
    run("llama-3-8b", phase="prefill", batch=8, seq=512),
    run("llama-3.2-1b", phase="prefill", batch=8, seq=1024),
    run("tinyllama", phase="prefill", batch=32, seq=1024),
    run("llama-3.2-1b", phase="decode", batch=1, context=1024, seq=1),
    run("llama-3.2-1b", phase="decode", batch=32, context=1024, seq=1),
    run("llama-3-8b", phase="decode", batch=16, context=2048, seq=1),
    run("llama-3-8b", phase="decode", batch=32, context=2048, seq=1),
    run("llama-3-8b", phase="decode", batch=64, context=4096, seq=1),
    run("mistral-7b", phase="decode", batch=8, context=4096, seq=1),
]


def name_of(r):
    parts = [r["model"], r["phase"], f"b{r['batch']}", f"c{r['context']}" if r["phase"] == "decode" else f"s{r['seq']}"]
    parts += [r["attention"]] if r["attention"] != "sdpa" else []
    parts += [r["precision"]] if r["precision"] != "pure" else []
    parts += [w for w in ("recompute", "compiled") if r[w]]
    return "-".join(str(p) for p in parts)


def build(r):
    cls, fields = MODELS[r["model"]]
    config_class = getattr(transformers, CONFIGS.get(cls, cls + "Config"))
    off = {k: 0.0 for k in ("attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout", "dropout", "dropout_rate",
                            "resid_dropout", "embd_dropout", "activation_dropout", "layerdrop")}
    probe = config_class()
    config = config_class(**fields, **{k: v for k, v in off.items() if hasattr(probe, k)})
    if r["phase"] in ("train", "forward"):
        config.use_cache = False
    config._attn_implementation = r["attention"]
    wanted = CLASSES.get(cls, cls + "ForCausalLM")
    dtype = torch.float32 if r["precision"] == "mixed" else torch.bfloat16
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            net = getattr(transformers, wanted)._from_config(config, attn_implementation=r["attention"], dtype=dtype)
    finally:
        torch.set_default_dtype(previous)
    for parameter in net.parameters():  # whatever the initialiser left constant would draw less power
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.02)
    if r["recompute"]:
        net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return config, net


def make_step(r, config, net):
    device = "cuda"
    vocab = getattr(config, "vocab_size", 2)
    cls = MODELS[r["model"]][0]
    if cls == "ViT":
        inputs = {"pixel_values": torch.randn(r["batch"], 3, 224, 224, device=device, dtype=torch.float32 if r["precision"] == "mixed" else torch.bfloat16)}
        labels = torch.randint(0, 2, (r["batch"],), device=device)
    elif cls == "Whisper":
        inputs = {"input_features": torch.randn(r["batch"], config.num_mel_bins, 2 * config.max_source_positions, device=device, dtype=torch.bfloat16),
                  "decoder_input_ids": torch.randint(3, vocab, (r["batch"], 448), device=device)}
        labels = inputs["decoder_input_ids"].clone()
    else:
        inputs = {"input_ids": torch.randint(3, vocab, (r["batch"], max(1, r["seq"])), device=device)}
        labels = inputs["input_ids"].clone()
    call = torch.compile(net) if r["compiled"] else net
    if r["phase"] == "train":
        net.train()
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=r["optimizer"] == "fused", foreach=None if r["optimizer"] == "fused" else True)

        def step():
            if r["precision"] == "mixed":
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = call(**inputs, labels=labels).loss
            else:
                loss = call(**inputs, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return step, lambda: None
    net.eval()
    if r["phase"] == "forward":
        more = {"decoder_input_ids": labels} if cls == "T5" else {}

        @torch.no_grad()
        def step():
            call(**inputs, **more)
        return step, lambda: None
    if r["phase"] == "prefill":
        @torch.no_grad()
        def step():
            call(**inputs, use_cache=True, logits_to_keep=1)
        return step, lambda: None
    state = {}
    prompt = torch.randint(3, vocab, (r["batch"], r["context"]), device=device)
    with torch.no_grad():
        chunks = []
        cache = transformers.DynamicCache(config=config)
        for at in range(0, r["context"], 1024):
            call(input_ids=prompt[:, at:at + 1024], past_key_values=cache, use_cache=True, logits_to_keep=1)
        state["cache"] = cache

    kept = [(layer.keys, layer.values) for layer in state["cache"].layers]

    def before():  # the cache as it was, in one piece: a cropped one would be a strided view, which cat copies more slowly
        for layer, (keys, values) in zip(state["cache"].layers, kept):
            layer.keys, layer.values = keys, values

    @torch.no_grad()
    def step():
        call(**inputs, past_key_values=state["cache"], use_cache=True, logits_to_keep=1)
    return step, before


def timed(step, before, seconds, least=5, most=40):
    times, hosts = [], []
    deadline = time.perf_counter() + seconds
    while len(times) < least or (len(times) < most and time.perf_counter() < deadline):
        before()
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        step()
        t1 = time.perf_counter()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - t0) * 1e3)
        hosts.append((t1 - t0) * 1e3)
    return times, hosts


def sm_clock():
    try:
        import pynvml
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM), pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
    except Exception:
        return 0, 0


def kernels_of(path):
    """Kernels of a profiler trace, grouped: PyTorch operator, input sizes, types, strides, kernel name -> count and microseconds; with busy time and number of events."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    ops, backward_threads = {}, set()
    for e in events:
        if e.get("cat") == "cpu_op":
            ops[e["args"].get("External id")] = e
            if e["name"].startswith("autograd::engine::evaluate_function"):
                backward_threads.add((e["pid"], e["tid"]))
    spans, groups, order = [], {}, 0
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation" and str(e.get("name", "")).startswith("Optimizer.step")]
    for e in sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memset", "gpu_memcpy")), key=lambda e: e["ts"]):
        spans.append((e["ts"], e["ts"] + e["dur"]))
        op = ops.get(e["args"].get("External id"))
        args = op["args"] if op else {}
        where = "optimizer" if op and any(a <= op["ts"] <= b for a, b in steps) else "backward" if op and (op["pid"], op["tid"]) in backward_threads else "forward"
        key = (where, op["name"] if op else "", json.dumps(args.get("Input Dims", []))[:300], json.dumps(args.get("Input type", []))[:200], json.dumps(args.get("Input Strides", []))[:300], e["name"][:160],
               e["cat"])
        group = groups.setdefault(key, [0, 0.0, order, e["args"].get("grid"), e["args"].get("block")])
        group[0] += 1
        group[1] += e["dur"]
        order += 1
    busy, end = 0.0, 0.0
    for a, b in sorted(spans):
        busy += max(0.0, b - max(a, end))
        end = max(end, b)
    rows = [dict(where=k[0], op=k[1], dims=json.loads(k[2]) if k[2].endswith("]") and len(k[2]) < 300 else k[2], types=k[3], strides=k[4], kernel=k[5], cat=k[6], count=v[0], us=round(v[1], 2), first=v[2],
                 grid=v[3], block=v[4]) for k, v in groups.items()]
    return dict(busy_us=busy, span_us=spans[-1][1] - spans[0][0] if spans else 0, events=len(spans), kernels=rows)


def measure(r, out, traces):
    torch._C._cuda_clearCublasWorkspaces()  # each run pays for its own
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before_bytes = torch.cuda.memory_allocated()
    config, net = build(r)
    row = dict(id=name_of(r), **{k: r[k] for k in ("model", "phase", "batch", "seq", "context", "attention", "precision", "recompute", "compiled", "fit")})
    row["parameters"] = sum(p.numel() for p in net.parameters())
    row["left_over_bytes"] = before_bytes
    row["model_bytes"] = torch.cuda.memory_allocated() - before_bytes
    step, before = make_step(r, config, net)
    t0 = time.perf_counter()
    for _ in range(2):
        before()
        step()
    torch.cuda.synchronize()
    row["first_s"] = round(time.perf_counter() - t0, 2)
    row["state_bytes"] = torch.cuda.memory_allocated() - before_bytes
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before()
    step()
    torch.cuda.synchronize()
    if r["phase"] != "decode":  # what keeps the cache of before would count
        row["peak_bytes"] = torch.cuda.max_memory_allocated() - before_bytes
        row["reserved_bytes"] = torch.cuda.max_memory_reserved()
    gc.disable()
    times, hosts = timed(step, before, 0.6)
    if r["phase"] != "decode":
        count = max(3, min(20, int(400 / max(statistics.median(times), 1))))
        torch.cuda.synchronize()
        t0 = time.perf_counter()
        for _ in range(count):
            step()
        row["clock_mhz"], row["power_w"] = sm_clock()
        torch.cuda.synchronize()
        row["stream_ms"] = round((time.perf_counter() - t0) / count * 1e3, 4)
    later, later_hosts = timed(step, before, 0.6)  # other guests of the machine slow the host down for seconds at a time
    times, hosts = times + later, hosts + later_hosts
    quartiles = statistics.quantiles(times, n=4)
    row.update(step_ms=round(statistics.median(times), 4), spread_ms=round((quartiles[2] - quartiles[0]) / 2, 4), min_ms=round(min(times), 4), max_ms=round(max(times), 4), repeats=len(times),
               host_ms=round(statistics.median(hosts), 4))
    if r["long"]:
        windows = []
        for _ in range(8):
            t0, n = time.perf_counter(), 0
            while time.perf_counter() - t0 < 1:
                step()
                n += 1
                torch.cuda.synchronize()
            windows.append([round((time.perf_counter() - t0) / n * 1e3, 3), *sm_clock()])
        row["windows"] = json.dumps(windows)
    gc.enable()
    before()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA], record_shapes=True) as profiler:
        step()
        torch.cuda.synchronize()
    path = os.path.join("/tmp", row["id"] + ".json")
    profiler.export_chrome_trace(path)
    kernels = kernels_of(path)
    row["busy_ms"], row["events"] = round(kernels["busy_us"] / 1e3, 4), kernels["events"]
    if r["trace"]:
        with open(path, "rb") as raw, gzip.open(path + ".gz", "wb", compresslevel=6) as packed:
            packed.write(raw.read())
        traces.add(path + ".gz", arcname=row["id"] + ".json.gz")
    os.remove(path)
    return row, kernels, config.to_dict()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--budget", type=float, default=1e9)
    parser.add_argument("--more", action="store_true", help="the second list")
    parser.add_argument("--later", action="store_true", help="the third list")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    words = [w for w in args.only.split(",") if w]
    start = time.time()
    columns = ["id", "model", "phase", "batch", "seq", "context", "attention", "precision", "recompute", "compiled", "fit", "parameters", "step_ms", "spread_ms", "min_ms", "max_ms", "repeats", "stream_ms",
               "host_ms", "busy_ms", "events", "peak_bytes", "reserved_bytes", "model_bytes", "state_bytes", "left_over_bytes", "clock_mhz", "power_w", "windows", "first_s", "gpu", "driver", "library",
               "date", "reason"]
    driver = ""
    try:
        import pynvml
        pynvml.nvmlInit()
        driver = pynvml.nvmlSystemGetDriverVersion()
    except Exception:
        pass
    library = f"PyTorch {torch.__version__}, transformers {transformers.__version__}, cuDNN {torch.backends.cudnn.version()}"
    configs = {}
    torch.backends.cuda.matmul.allow_tf32 = False
    with open(os.path.join(args.out, "steps.csv"), "w", newline="") as file, gzip.open(os.path.join(args.out, "kernels.jsonl.gz"), "wt") as lines, \
            tarfile.open(os.path.join(args.out, "traces.tar"), "w") as traces:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        for r in LATER if args.later else MORE if args.more else RUNS:
            if words and not any(w in name_of(r) for w in words):
                continue
            row = dict(id=name_of(r), **r)
            if time.time() - start > args.budget:
                row["reason"] = "no time left"
            else:
                try:
                    row, kernels, config = measure(r, args.out, traces)
                    configs[r["model"]] = config
                    lines.write(json.dumps(dict(id=row["id"], **kernels)) + "\n")
                except Exception as error:  # a run that fails is a row with a reason
                    row["reason"] = f"{type(error).__name__}: {error}"[:300].replace("\n", " ")
            row.update(gpu=torch.cuda.get_device_name(), driver=driver, library=library, date=time.strftime("%Y-%m-%d"))
            writer.writerow(row)
            file.flush()
            print(f"{time.time() - start:6.1f} s  {row['id']:48} {row.get('step_ms', '-'):>10} ms  host {row.get('host_ms', '-')}  busy {row.get('busy_ms', '-')}  peak {row.get('peak_bytes', 0) / 1e9:.3f} GB  {row.get('reason', '')}",
                  flush=True)
            gc.collect()
            torch._dynamo.reset()
            torch.cuda.empty_cache()
    with open(os.path.join(args.out, "configs.json"), "w") as file:
        json.dump(configs, file, default=str)


if __name__ == "__main__":
    sys.exit(main())
