#!/usr/bin/env python3
"""Exact parameter counts from transformers, on the meta device (no weights, no GPU, no download).

    python3 tests/device/parameter_truth.py [--csv parameter_truth.csv] [--jsonl hf_mini.jsonl]

Writes two files:
  --csv    name,parameters,embedding_parameters,reason    every shipped model (models/*.yaml) and every reduced config; tied weights counted once; `embedding_parameters` are
           those of token, position and token-type tables; a row that failed has empty numbers and the reason.
  --jsonl  one line per reduced config: {"name", "parameters", "embedding_parameters", "head", "config": config.to_dict()}; fixtures for the config.json reader.

The sizes below are those of the published configurations; see the `source:` of models/NAME.yaml.
"""
import argparse
import csv
import json
import sys

import torch
import transformers
from transformers import AutoConfig


def llama(hidden, ffn, layers, heads, kv_heads, vocab, max_positions, **more):
    return dict(model_type="llama", hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
                vocab_size=vocab, max_position_embeddings=max_positions, **{"tie_word_embeddings": False, **more})


def like(model_type, hidden, ffn, layers, heads, kv_heads, vocab, max_positions, **more):
    return {**llama(hidden, ffn, layers, heads, kv_heads, vocab, max_positions), "model_type": model_type, **more}


def gpt2(hidden, layers, heads, vocab=50257, positions=1024):
    return dict(model_type="gpt2", n_embd=hidden, n_layer=layers, n_head=heads, vocab_size=vocab, n_positions=positions, tie_word_embeddings=True)


def neox(hidden, layers, heads, vocab, **more):
    return dict(model_type="gpt_neox", hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=heads, vocab_size=vocab,
                max_position_embeddings=2048, tie_word_embeddings=False, **more)


def bert(hidden, layers, heads, vocab=30522, **more):
    return dict(model_type="bert", hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=heads, vocab_size=vocab,
                max_position_embeddings=512, type_vocab_size=2, **more)


def vit(hidden, layers, heads, **more):
    return dict(model_type="vit", hidden_size=hidden, intermediate_size=4 * hidden, num_hidden_layers=layers, num_attention_heads=heads, **more)


def alternating(layers, period):
    """`period` - 1 windowed layers, then one with full attention."""
    return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]


CAUSAL, MASKED, IMAGE, SEQ2SEQ, BASE = "causal_lm", "masked_lm", "classifier", "seq2seq_lm", "none"

SHIPPED = {
    "gpt2": (CAUSAL, gpt2(768, 12, 12)),
    "gpt2-medium": (CAUSAL, gpt2(1024, 24, 16)),
    "gpt2-large": (CAUSAL, gpt2(1280, 36, 20)),
    "gpt2-xl": (CAUSAL, gpt2(1600, 48, 25)),
    "gpt3-175b": (CAUSAL, gpt2(12288, 96, 96, positions=2048)),
    "megatron-22b": (CAUSAL, gpt2(6144, 48, 64, vocab=51200, positions=2048)),
    "megatron-530b": (CAUSAL, gpt2(20480, 105, 128, vocab=51200, positions=2048)),
    "megatron-1t": (CAUSAL, gpt2(25600, 128, 160, vocab=51200, positions=2048)),
    "llama-2-7b": (CAUSAL, llama(4096, 11008, 32, 32, 32, 32000, 4096)),
    "llama-2-13b": (CAUSAL, llama(5120, 13824, 40, 40, 40, 32000, 4096)),
    "llama-2-70b": (CAUSAL, llama(8192, 28672, 80, 64, 8, 32000, 4096)),
    "llama-3-8b": (CAUSAL, llama(4096, 14336, 32, 32, 8, 128256, 8192)),
    "llama-3-70b": (CAUSAL, llama(8192, 28672, 80, 64, 8, 128256, 8192)),
    "llama-3.1-405b": (CAUSAL, llama(16384, 53248, 126, 128, 8, 128256, 131072)),
    "llama-3.2-1b": (CAUSAL, llama(2048, 8192, 16, 32, 8, 128256, 131072, tie_word_embeddings=True)),
    "llama-3.2-3b": (CAUSAL, llama(3072, 8192, 28, 24, 8, 128256, 131072, tie_word_embeddings=True)),
    "mistral-7b": (CAUSAL, like("mistral", 4096, 14336, 32, 32, 8, 32000, 32768, sliding_window=4096)),
    "mixtral-8x7b": (CAUSAL, like("mixtral", 4096, 14336, 32, 32, 8, 32000, 32768, num_local_experts=8, num_experts_per_tok=2)),
    "qwen2-7b": (CAUSAL, like("qwen2", 3584, 18944, 28, 28, 4, 152064, 131072)),
    "qwen2.5-72b": (CAUSAL, like("qwen2", 8192, 29568, 80, 64, 8, 152064, 131072)),
    "qwen3-8b": (CAUSAL, like("qwen3", 4096, 12288, 36, 32, 8, 151936, 40960, head_dim=128)),
    "qwen3-30b-a3b": (CAUSAL, like("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, 40960, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768)),
    "qwen3-235b-a22b": (CAUSAL, like("qwen3_moe", 4096, 12288, 94, 64, 4, 151936, 40960, head_dim=128, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=1536)),
    "gemma-2-9b": (CAUSAL, like("gemma2", 3584, 14336, 42, 16, 8, 256000, 8192, head_dim=256, sliding_window=4096, tie_word_embeddings=True)),
    "gemma-3-27b": (CAUSAL, like("gemma3_text", 5376, 21504, 62, 32, 16, 262208, 131072, head_dim=128, sliding_window=1024, tie_word_embeddings=True)),
    "deepseek-v2-lite": (CAUSAL, like("deepseek_v2", 2048, 10944, 27, 16, 16, 102400, 163840, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
                                      v_head_dim=128, n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1)),
    "deepseek-v3": (CAUSAL, like("deepseek_v3", 7168, 18432, 61, 128, 128, 129280, 163840, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
                                 v_head_dim=128, n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=2048, first_k_dense_replace=3)),
    "gpt-oss-20b": (CAUSAL, like("gpt_oss", 2880, 2880, 24, 64, 8, 201088, 131072, head_dim=64, num_local_experts=32, num_experts_per_tok=4, sliding_window=128)),
    "gpt-oss-120b": (CAUSAL, like("gpt_oss", 2880, 2880, 36, 64, 8, 201088, 131072, head_dim=64, num_local_experts=128, num_experts_per_tok=4, sliding_window=128)),
    "olmoe-1b-7b": (CAUSAL, like("olmoe", 2048, 1024, 16, 16, 16, 50304, 4096, num_experts=64, num_experts_per_tok=8)),
    "pythia-1.4b": (CAUSAL, neox(2048, 24, 16, 50304)),
    "gpt-neox-20b": (CAUSAL, neox(6144, 44, 64, 50432)),
    "opt-6.7b": (CAUSAL, dict(model_type="opt", hidden_size=4096, ffn_dim=16384, num_hidden_layers=32, num_attention_heads=32, vocab_size=50272, max_position_embeddings=2048,
                              word_embed_proj_dim=4096, tie_word_embeddings=True)),
    "bloom-7b1": (CAUSAL, dict(model_type="bloom", hidden_size=4096, n_layer=30, n_head=32, vocab_size=250880, tie_word_embeddings=True)),
    "falcon-7b": (CAUSAL, dict(model_type="falcon", hidden_size=4544, num_hidden_layers=32, num_attention_heads=71, vocab_size=65024, multi_query=True, parallel_attn=True,
                               new_decoder_architecture=False, bias=False, alibi=False, tie_word_embeddings=True)),
    "phi-3-mini": (CAUSAL, like("phi3", 3072, 8192, 32, 32, 32, 32064, 4096, pad_token_id=0)),
    "bert-base": (MASKED, bert(768, 12, 12)),
    "bert-large": (MASKED, bert(1024, 24, 16)),
    "roberta-base": (MASKED, {**bert(768, 12, 12, vocab=50265), "model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1}),
    "t5-base": (SEQ2SEQ, dict(model_type="t5", d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12, vocab_size=32128, feed_forward_proj="relu",
                              tie_word_embeddings=True)),
    "vit-base": (IMAGE, vit(768, 12, 12)),
    "vit-large": (IMAGE, vit(1024, 24, 16)),
    "whisper-small": (BASE, dict(model_type="whisper", d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12, decoder_attention_heads=12,
                                 encoder_ffn_dim=3072, decoder_ffn_dim=3072, vocab_size=51865, num_mel_bins=80, max_source_positions=1500, max_target_positions=448)),
}

# Reduced configs with odd sizes: what the reader of config.json must get right in each family.
SMALL = (96, 272, 3, 6, 3, 1009, 128)  # hidden, ffn, layers, heads, kv_heads, vocab, positions
MLA = dict(kv_lora_rank=40, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=20, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=56, n_group=1, topk_group=1)
BLOOM = dict(model_type="bloom", hidden_size=96, n_layer=2, n_head=6, vocab_size=1009)
FALCON = dict(model_type="falcon", hidden_size=96, num_hidden_layers=2, num_attention_heads=6, vocab_size=1009)
OPT = dict(model_type="opt", hidden_size=96, ffn_dim=272, num_hidden_layers=2, num_attention_heads=6, vocab_size=1009, max_position_embeddings=128, word_embed_proj_dim=96)
T5 = dict(model_type="t5", d_model=96, d_kv=24, d_ff=272, num_layers=2, num_heads=6, vocab_size=1009)
WHISPER = dict(model_type="whisper", d_model=96, encoder_layers=2, decoder_layers=3, encoder_attention_heads=6, decoder_attention_heads=6, encoder_ffn_dim=272, decoder_ffn_dim=208,
               vocab_size=1009, num_mel_bins=40, max_source_positions=150, max_target_positions=44, pad_token_id=0, decoder_start_token_id=1, bos_token_id=1, eos_token_id=2)
GPT2 = dict(model_type="gpt2", n_embd=96, n_layer=2, n_head=6, vocab_size=1009, n_positions=128)

MINI = {
    "gpt2-mini-1": (CAUSAL, GPT2),
    "gpt2-mini-2": (CAUSAL, {**GPT2, "n_inner": 200, "tie_word_embeddings": False}),
    "gpt2-mini-3": (BASE, GPT2),
    "gpt_neo-mini-1": (CAUSAL, dict(model_type="gpt_neo", hidden_size=96, num_layers=4, num_heads=6, vocab_size=1009, max_position_embeddings=128,
                                    attention_types=[[["global", "local"], 2]], window_size=32)),
    "gptj-mini-1": (CAUSAL, dict(model_type="gptj", n_embd=96, n_layer=2, n_head=6, vocab_size=1009, n_positions=128, rotary_dim=8)),
    "gpt_neox-mini-1": (CAUSAL, neox(96, 2, 6, 1009)),
    "gpt_neox-mini-2": (CAUSAL, neox(96, 2, 6, 1009, use_parallel_residual=False, attention_bias=False)),
    "opt-mini-1": (CAUSAL, OPT),
    "opt-mini-2": (CAUSAL, {**OPT, "word_embed_proj_dim": 40, "do_layer_norm_before": False}),
    "opt-mini-3": (CAUSAL, {**OPT, "enable_bias": False, "tie_word_embeddings": False}),
    "bloom-mini-1": (CAUSAL, BLOOM),
    "falcon-mini-1": (CAUSAL, {**FALCON, "multi_query": True, "parallel_attn": True, "bias": False}),
    "falcon-mini-2": (CAUSAL, {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": False}),
    "falcon-mini-3": (CAUSAL, {**FALCON, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}),
    "llama-mini-1": (CAUSAL, llama(*SMALL)),
    "llama-mini-2": (CAUSAL, llama(*SMALL, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama-mini-3": (CAUSAL, llama(*SMALL, head_dim=24)),
    "llama-mini-4": (CAUSAL, {**llama(*SMALL), "num_key_value_heads": None, "head_dim": None}),
    "llama-mini-5": (BASE, llama(*SMALL)),
    "mistral-mini-1": (CAUSAL, like("mistral", *SMALL, sliding_window=64, head_dim=24)),
    "mixtral-mini-1": (CAUSAL, like("mixtral", *SMALL, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2-mini-1": (CAUSAL, like("qwen2", *SMALL, use_sliding_window=False, sliding_window=64)),
    "qwen2-mini-2": (CAUSAL, like("qwen2", *SMALL, use_sliding_window=True, sliding_window=64, max_window_layers=1, tie_word_embeddings=True)),
    "qwen3-mini-1": (CAUSAL, like("qwen3", *SMALL, head_dim=24)),
    "qwen3-mini-2": (CAUSAL, like("qwen3", *SMALL, head_dim=24, attention_bias=True, tie_word_embeddings=True)),
    "qwen3_moe-mini-1": (CAUSAL, like("qwen3_moe", *SMALL, head_dim=24, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=56)),
    "qwen3_moe-mini-2": (CAUSAL, {**like("qwen3_moe", *SMALL, head_dim=24, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=56), "num_hidden_layers": 7,
                                  "decoder_sparse_step": 2, "mlp_only_layers": [3]}),
    "gemma2-mini-1": (CAUSAL, like("gemma2", *SMALL, head_dim=24, sliding_window=64, tie_word_embeddings=True)),
    "gemma3_text-mini-1": (CAUSAL, {**like("gemma3_text", *SMALL, head_dim=24, sliding_window=64, tie_word_embeddings=True), "num_hidden_layers": 8}),
    "gpt_oss-mini-1": (CAUSAL, like("gpt_oss", *SMALL, head_dim=24, num_local_experts=4, num_experts_per_tok=2, sliding_window=32)),
    "deepseek_v2-mini-1": (CAUSAL, like("deepseek_v2", *SMALL, q_lora_rank=None, n_shared_experts=2, first_k_dense_replace=1, **MLA)),
    "deepseek_v2-mini-2": (CAUSAL, like("deepseek_v2", *SMALL, q_lora_rank=32, n_shared_experts=1, first_k_dense_replace=0, attention_bias=True, **MLA)),
    "deepseek_v3-mini-1": (CAUSAL, like("deepseek_v3", *SMALL, q_lora_rank=32, n_shared_experts=1, first_k_dense_replace=2, **MLA)),
    "deepseek_v3-mini-2": (CAUSAL, like("deepseek_v3", *SMALL, q_lora_rank=None, n_shared_experts=1, first_k_dense_replace=1, attention_bias=True, tie_word_embeddings=True, **MLA)),
    "olmoe-mini-1": (CAUSAL, like("olmoe", *SMALL, num_experts=8, num_experts_per_tok=2)),
    "qwen2_moe-mini-1": (CAUSAL, like("qwen2_moe", *SMALL, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=56, shared_expert_intermediate_size=80)),
    "gemma-mini-1": (CAUSAL, like("gemma", *SMALL, head_dim=24, tie_word_embeddings=True)),
    "gemma-mini-2": (CAUSAL, like("gemma", *SMALL, head_dim=24, attention_bias=True)),
    "olmo2-mini-1": (CAUSAL, like("olmo2", *SMALL)),
    "phi-mini-1": (CAUSAL, like("phi", *SMALL)),
    "phi-mini-2": (CAUSAL, like("phi", *SMALL, qk_layernorm=True, partial_rotary_factor=0.25)),
    "starcoder2-mini-1": (CAUSAL, {**like("starcoder2", *SMALL), "tie_word_embeddings": True}),
    "starcoder2-mini-2": (CAUSAL, like("starcoder2", *SMALL, use_bias=False, sliding_window=64)),
    "distilbert-mini-1": (MASKED, dict(model_type="distilbert", dim=96, hidden_dim=272, n_layers=2, n_heads=6, vocab_size=1009, max_position_embeddings=128)),
    "distilbert-mini-2": (BASE, dict(model_type="distilbert", dim=96, hidden_dim=272, n_layers=2, n_heads=6, vocab_size=1009, max_position_embeddings=128)),
    "phi3-mini-1": (CAUSAL, like("phi3", *SMALL, pad_token_id=0)),
    "bert-mini-1": (MASKED, bert(96, 2, 6, vocab=1009)),
    "bert-mini-2": (BASE, bert(96, 2, 6, vocab=1009)),
    "roberta-mini-1": (MASKED, {**bert(96, 2, 6, vocab=1009), "model_type": "roberta", "type_vocab_size": 1, "max_position_embeddings": 130}),
    "t5-mini-1": (SEQ2SEQ, {**T5, "feed_forward_proj": "relu", "tie_word_embeddings": True}),
    "t5-mini-2": (SEQ2SEQ, {**T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 3, "tie_word_embeddings": False}),
    "vit-mini-1": (IMAGE, vit(96, 2, 6, image_size=48, patch_size=8)),
    "vit-mini-2": (IMAGE, vit(96, 2, 6, image_size=50, patch_size=8, num_channels=1, qkv_bias=False, num_labels=7)),
    "vit-mini-3": (BASE, vit(96, 2, 6, image_size=48, patch_size=8)),
    "whisper-mini-1": (BASE, WHISPER),
}

CLASSES = {
    CAUSAL: "AutoModelForCausalLM", MASKED: "AutoModelForMaskedLM", IMAGE: "AutoModelForImageClassification", SEQ2SEQ: "AutoModelForSeq2SeqLM", BASE: "AutoModel",
}


def build(head, values):
    values = dict(values)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        model = getattr(transformers, CLASSES[head]).from_config(config)
    model.tie_weights()
    config.architectures = [type(model).__name__]
    return config, model


def count(model):
    """Parameters, tied ones once, and those of lookup tables."""
    seen, tables = {}, {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            seen[id(parameter)] = parameter.numel()
            if isinstance(module, torch.nn.Embedding):
                tables[id(parameter)] = parameter.numel()
    return sum(seen.values()), sum(tables.values())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--csv", default="parameter_truth.csv")
    arguments.add_argument("--jsonl", default="hf_mini.jsonl")
    arguments.add_argument("--only", default="", help="names that contain this")
    options = arguments.parse_args()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}", file=sys.stderr)
    failed = 0
    with open(options.csv, "w", newline="") as table, open(options.jsonl, "w") as lines:
        writer = csv.writer(table)
        writer.writerow(["name", "parameters", "embedding_parameters", "reason"])
        for name, (head, values) in {**SHIPPED, **MINI}.items():
            if options.only not in name:
                continue
            try:
                config, model = build(head, values)
                parameters, embedding = count(model)
                writer.writerow([name, parameters, embedding, ""])
                if name in MINI:
                    record = {"name": name, "parameters": parameters, "embedding_parameters": embedding, "head": head, "config": config.to_dict(), "diff": config.to_diff_dict()}
                    lines.write(json.dumps(record, sort_keys=True, default=str) + "\n")
                del model
            except Exception as error:  # one failure is one row
                failed += 1
                writer.writerow([name, "", "", f"{type(error).__name__}: {error}".replace("\n", " ")[:300]])
            table.flush()
            lines.flush()
    print(f"{failed} failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
