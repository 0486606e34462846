#!/usr/bin/env python3
"""Exports Hugging Face models with torch.onnx (dynamo) and counts their FLOPs with PyTorch's own counter: the truth that ONNX graphs and config.json are held against.

    python3 tests/device/export_models.py [--out onnx_truth] [--only gpt2,vit] [--workers 6] [--timeout 80]

Needs torch, transformers, onnx and onnxscript; no download and no GPU (one is used for counting where the meta device refuses). Models are built from configurations with two to four
layers of the published widths; each weight is filled with a number of its own (exporters drop products with ones and sums with zeros, and merge equal tensors). Each model runs in a process of its own: one that fails or takes too long leaves the
others alone, and its reason stands in the result. Written to --out:

    NAME.onnx     the graph; every tensor over 1 kB (over 64 Ki elements for integers) is an external-data stub whose file does not exist
    NAME.json     the configuration, as config.json
    truth.json    {NAME: {"parameters", "inputs", "points": [{"bindings": {SYMBOL: N}, "flops", "outputs": [[..]]}], "head", "kind", "exported": true} or {..., "error"}}
    models.tar.gz all of the above in one file

FLOPs are FlopCounterMode's on the model with attn_implementation="eager" (products written out, so attention is counted dense and no kernel is missed); the export uses sdpa unless the
name says otherwise. Compare with tests/device/compare_exports.py.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tarfile
import time

# Widths of the published models, few layers. `head`: class of transformers.AutoModel...; `kind`: which inputs the forward takes.
LLAMA = dict(model_type="llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
             max_position_embeddings=8192, tie_word_embeddings=False)
SMALL_LLAMA = {**LLAMA, "hidden_size": 2048, "intermediate_size": 8192, "tie_word_embeddings": True}
GPT2 = dict(model_type="gpt2", n_embd=768, n_layer=4, n_head=12, vocab_size=50257, n_positions=1024)
QWEN2 = dict(model_type="qwen2", hidden_size=3584, intermediate_size=18944, num_hidden_layers=2, num_attention_heads=28, num_key_value_heads=4, vocab_size=152064,
             max_position_embeddings=131072, tie_word_embeddings=False)
GEMMA2 = dict(model_type="gemma2", hidden_size=2304, intermediate_size=9216, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=4, head_dim=256, vocab_size=256000,
              max_position_embeddings=8192, sliding_window=4096, tie_word_embeddings=True)
BERT = dict(model_type="bert", hidden_size=768, intermediate_size=3072, num_hidden_layers=4, num_attention_heads=12, vocab_size=30522, max_position_embeddings=512)
VIT = dict(model_type="vit", hidden_size=768, intermediate_size=3072, num_hidden_layers=4, num_attention_heads=12, image_size=224, patch_size=16)
WHISPER = dict(model_type="whisper", d_model=768, encoder_layers=3, decoder_layers=3, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072,
               decoder_ffn_dim=3072, vocab_size=51865, num_mel_bins=80, max_source_positions=1500, max_target_positions=448)
QWEN3 = dict(model_type="qwen3", hidden_size=4096, intermediate_size=12288, num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=8, head_dim=128, vocab_size=151936,
             max_position_embeddings=40960, tie_word_embeddings=False)
NEOX = dict(model_type="gpt_neox", hidden_size=2048, intermediate_size=8192, num_hidden_layers=2, num_attention_heads=16, vocab_size=50304, max_position_embeddings=2048,
            tie_word_embeddings=False)
T5 = dict(model_type="t5", d_model=768, d_kv=64, d_ff=3072, num_layers=2, num_decoder_layers=2, num_heads=12, vocab_size=32128, feed_forward_proj="relu", tie_word_embeddings=True)

CAUSAL, MASKED, IMAGE, SEQ2SEQ, BASE = "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForImageClassification", "AutoModelForSeq2SeqLM", "AutoModel"
#        name: (head, kind, configuration, further options of the export)
MODELS = {
    "gpt2": (CAUSAL, "tokens", GPT2, {}),
    "llama": (CAUSAL, "tokens", LLAMA, {}),
    "qwen2": (CAUSAL, "tokens", QWEN2, {}),
    "gemma2": (CAUSAL, "tokens", GEMMA2, {}),
    "bert": (MASKED, "masked", BERT, {}),
    "vit": (IMAGE, "image", VIT, {}),
    "whisper": (BASE, "speech", WHISPER, {}),
    "llama-cache": (CAUSAL, "cache", SMALL_LLAMA, {}),
    "gpt2-cache": (CAUSAL, "cache", GPT2, {}),
    "llama-eager": (CAUSAL, "tokens", SMALL_LLAMA, {"attn_implementation": "eager"}),
    "llama-opset23": (CAUSAL, "tokens", SMALL_LLAMA, {"opset_version": 23}),
    "qwen3": (CAUSAL, "tokens", QWEN3, {}),
    "gpt-neox": (CAUSAL, "tokens", NEOX, {}),
    "t5": (SEQ2SEQ, "text_to_text", T5, {}),
}


def without_initialisation():
    """Weights keep whatever memory holds until fill(): gigabytes of random numbers would take most of the time. Buffers that are computed stay computed."""
    import torch

    places = [torch.nn.init]
    try:
        from transformers import initialization

        places.append(initialization)
    except ImportError:
        pass
    for place in places:
        for name in ("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_", "xavier_normal_", "orthogonal_"):
            if hasattr(place, name):
                setattr(place, name, lambda tensor, *arguments, **more: tensor)


def build(head, values, attention, device):
    import torch
    import transformers

    values = dict(values)
    config = transformers.AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device(device):
        model = getattr(transformers, head).from_config(config, attn_implementation=attention)
    config.architectures = [type(model).__name__]
    return config, model.eval()


def fill(model):
    import torch

    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.fill_(0.01 + 0.001 * i)
            parameter[(0,) * parameter.dim()] = 0.5 + 0.001 * i


def wrapped(model, kind):
    """The model with plain tensors in and out, as the graph shall have them."""
    import torch
    import transformers

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids):
            return self.model(input_ids=input_ids, use_cache=False).logits

    class Masked(Tokens):
        def forward(self, input_ids, attention_mask, token_type_ids):
            return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids).logits

    class Image(Tokens):
        def forward(self, pixel_values):
            return self.model(pixel_values=pixel_values).logits

    class Speech(Tokens):
        def forward(self, input_features, decoder_input_ids):
            return self.model(input_features=input_features, decoder_input_ids=decoder_input_ids, use_cache=False).last_hidden_state

    class TextToText(Tokens):
        def forward(self, input_ids, decoder_input_ids):
            return self.model(input_ids=input_ids, decoder_input_ids=decoder_input_ids, use_cache=False).logits

    class Cache(Tokens):
        def forward(self, input_ids, past_keys, past_values):
            cache = transformers.DynamicCache(config=self.model.config)
            for i, (key, value) in enumerate(zip(past_keys, past_values)):
                if i < len(getattr(cache, "layers", [])) and hasattr(cache.layers[i], "keys"):
                    layer = cache.layers[i]
                    layer.keys, layer.values = key, value
                    layer.dtype, layer.device = key.dtype, key.device
                    layer.is_initialized = True
                else:
                    cache.update(key, value, i)
            out = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
            layers = out.past_key_values.layers
            return out.logits, [layer.keys for layer in layers], [layer.values for layer in layers]

    return {"tokens": Tokens, "masked": Masked, "image": Image, "speech": Speech, "cache": Cache, "text_to_text": TextToText}[kind]().eval()


def inputs_of(kind, config, point, device):
    """(arguments, dynamic shapes, input names, output names) at one point."""
    import torch

    batch, seq = point["batch"], point.get("seq", 1)

    def ids(rows, columns):
        return torch.zeros(rows, columns, dtype=torch.int64, device=device)

    if kind == "tokens":
        return (ids(batch, seq),), {"input_ids": {0: "batch", 1: "seq"}}, ["input_ids"], ["logits"]
    if kind == "masked":
        both = {0: "batch", 1: "seq"}
        return (ids(batch, seq), ids(batch, seq) + 1, ids(batch, seq)), dict(input_ids=both, attention_mask=both, token_type_ids=both), \
            ["input_ids", "attention_mask", "token_type_ids"], ["logits"]
    if kind == "image":
        return (torch.zeros(batch, config.num_channels, config.image_size, config.image_size, device=device),), {"pixel_values": {0: "batch"}}, ["pixel_values"], ["logits"]
    if kind == "speech":
        return (torch.zeros(batch, config.num_mel_bins, 2 * config.max_source_positions, device=device), ids(batch, seq)), \
            {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "seq"}}, ["input_features", "decoder_input_ids"], ["last_hidden_state"]
    if kind == "text_to_text":
        return (ids(batch, point["source"]), ids(batch, seq)), {"input_ids": {0: "batch", 1: "source"}, "decoder_input_ids": {0: "batch", 1: "seq"}}, \
            ["input_ids", "decoder_input_ids"], ["logits"]
    layers, heads = config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    past = [torch.zeros(batch, heads, point["past"], width, device=device) for _ in range(2 * layers)]
    axes = [{0: "batch", 2: "past"} for _ in range(layers)]
    names = [f"past_key_{i}" for i in range(layers)] + [f"past_value_{i}" for i in range(layers)]
    return (ids(batch, seq), past[:layers], past[layers:]), {"input_ids": {0: "batch", 1: "seq"}, "past_keys": axes, "past_values": [dict(a) for a in axes]}, \
        ["input_ids"] + names, ["logits"] + [name.replace("past", "present") for name in names]


POINTS = {
    "tokens": [{"batch": 1, "seq": 512}, {"batch": 3, "seq": 100}],
    "masked": [{"batch": 1, "seq": 512}, {"batch": 3, "seq": 100}],
    "image": [{"batch": 1}, {"batch": 8}],
    "speech": [{"batch": 1, "seq": 64}, {"batch": 2, "seq": 448}],
    "text_to_text": [{"batch": 1, "source": 512, "seq": 64}, {"batch": 2, "source": 100, "seq": 33}],
    "cache": [{"batch": 1, "seq": 1, "past": 511}, {"batch": 4, "seq": 5, "past": 100}],
}
SAMPLE = {"batch": 2, "seq": 12, "past": 9, "source": 17}


def shapes_of(outputs):
    flat = []
    for out in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
        flat += shapes_of(out) if isinstance(out, (list, tuple)) else [list(out.shape)]
    return flat


def count(head, kind, values, device):
    """FLOPs and output shapes at every point, on the meta device or, where that refuses, on a real one."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    config, model = build(head, values, "eager", device)
    model = wrapped(model, kind)
    points = []
    for point in POINTS[kind]:
        arguments = inputs_of(kind, config, point, device)[0]
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            outputs = model(*arguments)
        points.append({"bindings": point, "flops": counter.get_total_flops(), "outputs": shapes_of(outputs)})
    parameters = sum(tensor.numel() for tensor in {id(p): p for p in model.parameters()}.values())
    return config, parameters, points


def stubbed(program, path):
    """The graph without its weights: large tensors point into a file that does not exist."""
    import onnx_ir

    offset = 0
    for value in program.model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            continue
        elements = 1
        for size in tensor.shape:
            elements *= int(size)
        integer = tensor.dtype in (onnx_ir.DataType.INT64, onnx_ir.DataType.INT32, onnx_ir.DataType.BOOL)
        if elements <= 65536 if integer else tensor.nbytes <= 1024:
            continue
        value.const_value = onnx_ir.ExternalTensor("stripped_weights.bin", offset, int(tensor.nbytes), tensor.dtype, shape=tensor.shape, name=value.name)
        offset += int(tensor.nbytes)
    onnx_ir.save(program.model, path)


def export(name, folder, entry):
    """Fills `entry` as it goes, so that what was known before a failure is kept."""
    import torch

    torch.set_num_threads(2)
    without_initialisation()
    head, kind, values, more = MODELS[name]
    entry.update(head=head, kind=kind)
    began = time.monotonic()
    real = "cuda" if torch.cuda.is_available() else "cpu"
    for device in ("meta", real):
        try:
            config, entry["parameters"], entry["points"] = count(head, kind, values, device)
            entry["counted_on"] = device
            break
        except Exception as error:  # noqa: BLE001: whatever it is, the other models go on
            entry["count_error_" + device] = repr(error)[-600:]
    with open(os.path.join(folder, name + ".json"), "w") as file:
        config, model = build(head, values, more.get("attn_implementation", "sdpa"), "cpu")
        json.dump(config.to_dict(), file, indent=1, default=str)
    fill(model)
    arguments, shapes, inputs, outputs = inputs_of(kind, config, SAMPLE, "cpu")
    entry["inputs"] = inputs
    options = {"opset_version": more["opset_version"]} if "opset_version" in more else {}
    with torch.no_grad():
        program = torch.onnx.export(wrapped(model, kind), arguments, dynamo=True, dynamic_shapes=shapes, input_names=inputs, output_names=outputs, verbose=False, **options)
    try:
        stubbed(program, os.path.join(folder, name + ".onnx"))
    except Exception as error:  # noqa: BLE001
        entry["stub_error"] = repr(error)[-600:]
        path = os.path.join(folder, name + ".onnx")
        program.save(path, external_data=True)
        if os.path.exists(path + ".data"):
            os.remove(path + ".data")
    entry["exported"] = True
    entry["seconds"] = round(time.monotonic() - began, 1)


def run_one(name, folder, timeout):
    out = os.path.join(folder, name + ".truth")
    command = [sys.executable, os.path.abspath(__file__), "--out", folder, "--one", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        tail = (done.stderr or done.stdout)[-1500:]
    except subprocess.TimeoutExpired:
        tail = f"more than {timeout} s"
    entry = {"exported": False}
    if os.path.exists(out):
        with open(out) as file:
            entry = json.load(file)
        os.remove(out)
    if not entry.get("exported"):
        entry.setdefault("error", tail)
    return name, entry


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="onnx_truth")
    parser.add_argument("--only", default="")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--timeout", type=float, default=80)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    if options.one:
        entry = {"exported": False}
        try:
            export(options.one, options.out, entry)
        except BaseException as error:  # noqa: BLE001
            import traceback

            entry["error"] = (repr(error)[-600:] + "\n" + traceback.format_exc())[-3000:]
        with open(os.path.join(options.out, options.one + ".truth"), "w") as file:
            json.dump(entry, file)
        return 0
    names = [name for name in options.only.split(",") if name] or list(MODELS)
    truth = {}
    with concurrent.futures.ThreadPoolExecutor(options.workers) as pool:
        for name, entry in pool.map(lambda n: run_one(n, options.out, options.timeout), names):
            truth[name] = entry
            path = os.path.join(options.out, name + ".onnx")
            size = os.path.getsize(path) if os.path.exists(path) else 0
            flops = [point["flops"] for point in entry.get("points", [])]
            print(f"{name:14} exported={entry['exported']} bytes={size} parameters={entry.get('parameters')} flops={flops} seconds={entry.get('seconds')}", flush=True)
            for key in entry:
                if "error" in key:
                    print("    " + key + ": " + str(entry[key])[-900:].replace("\n", "\n    "), flush=True)
    with open(os.path.join(options.out, "truth.json"), "w") as file:
        json.dump(truth, file, indent=1)
    with tarfile.open(os.path.join(options.out, "models.tar.gz"), "w:gz") as archive:
        for file in sorted(os.listdir(options.out)):
            if file.endswith((".onnx", ".json")):
                archive.add(os.path.join(options.out, file), arcname=os.path.join("onnx_truth", file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
