// ModelSpec -> Graph.
#pragma once

#include "estimator/core/result.h"
#include "estimator/graph/graph.h"
#include "estimator/passes/options.h"
#include "frontends/model_spec.h"

namespace rooftile {

// The operators of one micro-batch of `options.mbs` sequences of `options.seq` tokens: embeddings, each kind of layer once with its repeat count, head, and the loss when
// options.phase is train. prefill: all tokens, logits of the last one, KV cache written; decode: one new token with options.context in the cache; forward: logits of all.
// Errors: a size whose product passes 2^63 (invalid), a kind that cannot run the phase (unsupported: decode of an encoder).
Result<Graph> expand(const ModelSpec& spec, const Options& options);

}  // namespace rooftile
