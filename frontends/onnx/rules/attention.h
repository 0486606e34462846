// The sizes of an attention operator in any of its spellings, shared by shapes and costs. B batch, S queries, L keys, N query heads, K key heads, D and E sizes of a key and
// a value head.
#pragma once

#include <cstdint>
#include <optional>

#include "frontends/onnx/call.h"

namespace rooftile::onnx::rules {

struct AttentionSizes {
  Dim batch = 1, queries = 1, keys = 1, new_keys = 1;  // keys: past and new ones together
  Dim heads = 1, key_heads = 1, head_size = 1, value_size = 1;
  Dim projection_in = 0, projection_out = 0;  // of the fused q, k, v projection; 0: none
  bool causal = false;
  bool position_bias = false;
  bool rotary = false;
  bool softcap = false;
  std::int64_t window = 0;
  std::size_t rank = 3;  // of the output: 3 [B, S, N E], 4 [B, N, S, E]
};

// Reads the sizes from the node's inputs and attributes; nothing where a rank is unknown. Sizes that contradict each other are reported on the call.
std::optional<AttentionSizes> attention_sizes(Call& call);

}  // namespace rooftile::onnx::rules
