// What the pattern matchers share: who makes a tensor, who reads it, and how rows are replaced.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "frontends/onnx/propagate.h"

namespace rooftile::onnx {

class Patterns {
 public:
  explicit Patterns(Trace& trace);

  Trace& trace;
  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::uint32_t maker(std::uint32_t tensor) const { return makers_[tensor]; }  // step, or kNone
  std::span<const std::uint32_t> users(std::uint32_t tensor) const { return {users_.data() + first_user_[tensor], users_.data() + first_user_[tensor + 1]}; }
  // Steps that only ask for a tensor's size do not count as readers. The only step that reads the tensor; kNone when there are several, none, or the graph gives it out.
  std::uint32_t only_user(std::uint32_t tensor) const;

  std::string_view op(std::uint32_t step) const { return trace.steps[step].node->data->op; }
  bool standard(std::uint32_t step) const { return trace.steps[step].node->data->domain.empty() || trace.steps[step].node->data->domain == "ai.onnx"; }
  bool is(std::uint32_t step, std::string_view name) const { return step != kNone && op(step) == name && standard(step); }
  std::uint32_t input(std::uint32_t step, std::size_t i) const {
    const auto list = trace.inputs_of(trace.steps[step]);
    return i < list.size() ? list[i] : 0;
  }
  std::uint32_t output(std::uint32_t step, std::size_t i = 0) const {
    const auto list = trace.outputs_of(trace.steps[step]);
    return i < list.size() ? list[i] : 0;
  }
  bool fixed(std::uint32_t tensor) const { return tensor == 0 || trace.tensors[tensor].constant || trace.tensors[tensor].bookkeeping; }
  // Of a binary step: the operand that is not `known`, and the one that is computed where the other is fixed (0 where both or neither are).
  std::uint32_t other(std::uint32_t step, std::uint32_t known) const;
  std::uint32_t moving(std::uint32_t step) const;
  std::int64_t elements(std::uint32_t tensor) const;
  bool given_out(std::uint32_t tensor) const { return given_out_[tensor]; }
  double number(std::uint32_t tensor) const;  // of a constant scalar; NaN where it is not one

  std::span<Work> works(std::uint32_t step) { return {trace.works.data() + first_work_[step], trace.works.data() + first_work_[step + 1]}; }
  void kill(std::uint32_t step);
  // Makes the step's first row the given operator and drops its others.
  Work* become(std::uint32_t step, OpKind kind, OpAttrs attrs, std::vector<std::uint32_t> inputs, std::vector<std::uint32_t> outputs);

  // The region between one tensor and `end`: steps backwards from `end` through operators of `allowed` until `anchor` is among them and everything computed comes from a
  // single tensor. Fails when it takes over `limit` steps, leaves the repeat count of `end`, or a tensor inside is read outside.
  struct Region {
    std::uint32_t source = 0;
    std::vector<std::uint32_t> steps;  // last first
  };
  bool region(std::uint32_t end, std::uint32_t anchor, bool (*allowed)(std::string_view), std::size_t limit, Region& out) const;

 private:
  std::vector<std::uint32_t> makers_, users_, first_user_, first_work_;
  std::vector<bool> given_out_;
};

// Backwards from an operand of attention through transpositions, views, scalings and the repetition of key heads; `steps` only serve this attention.
struct Operand {
  std::uint32_t tensor = 0;
  std::int64_t copies = 1;  // each key head stands for this many query heads
  std::vector<std::uint32_t> steps;
};
Operand walk_back(const Patterns& patterns, std::uint32_t tensor, std::uint32_t user);

// Is the mask a lower triangle, by its elements or by how it is made? A single query behind its past sees every key that a mask of sizes alone leaves it.
bool masks_causally(const Patterns& patterns, std::uint32_t mask, std::int64_t queries, std::int64_t keys);

void recognise_attention(Patterns& patterns);
void recognise_rotary(Patterns& patterns);
void pair_rotations(Patterns& patterns);  // queries and keys are rotated by one kernel
void complete_attention(Patterns& patterns);

// present = Concat(past, new), given in and given out: a cache, of which a step writes its new tokens. Keys and values of a layer are written by one kernel.
void recognise_caches(Patterns& patterns);

// x + table[ids] is one kernel where only the sum reads the rows (positions, token types); the larger of two tables stays a look-up of its own.
void fold_position_tables(Patterns& patterns);

// Masks are made by one kernel: an elementwise operator on flags or integers that only another one reads is part of it.
void fold_mask_chains(Patterns& patterns);

// Attention, rotary embeddings and concatenations read their operands wherever they lie: a transposition that only they read is no kernel (patches of an image before the class
// token joins them, the heads of queries and keys).
void read_in_place(Patterns& patterns);

}  // namespace rooftile::onnx
