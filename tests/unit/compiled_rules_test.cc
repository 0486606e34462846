// What the operators of a compiled PyTorch step become under the shipped rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "estimator/passes/predict.h"
#include "estimator/passes/step.h"
#include "frontends/expand.h"
#include "frontends/hardware_files.h"
#include "frontends/model_files.h"

namespace rooftile {
namespace {

ModelSpec small() {
  ModelSpec spec;
  spec.name = "small";
  spec.layers = 2;
  spec.hidden = 256;
  spec.heads = 4;
  spec.ffn_hidden = 1024;
  spec.vocab = 8191;
  spec.max_positions = 128;
  return spec;
}

class CompiledRules : public testing::Test {
 protected:
  // The kernels of all operators of one kind in one phase, in order: of one layer, for the layers are one segment.
  std::vector<LoweredCall> calls(const ModelSpec& spec, OpKind kind, StepPhase phase) {
    Options options;
    options.mbs = options.gbs = 2;
    options.seq = 128;
    options.layout.dp = options.layout.gpus = 1;
    const DataPath data{{ROOFTILE_SOURCE_DIR}};
    runtime_ = *read_runtime(*data.find(DataKind::runtime, "torch-compile"));
    const Device device = *read_device(*data.find(DataKind::device, "h200_sxm"));
    const StepGraph whole = differentiate(*expand(*resolve(spec), options), options);
    const StepGraph step = shard(whole, options, runtime_, stages_of(whole.graph, options.layout).front());
    std::vector<LoweredCall> found;
    for (const LoweredCall& call : lower(step, options, runtime_, device)) {
      const StepEntry& entry = step.entries[call.entry];
      if (entry.phase == phase && step.graph.ops[entry.op].kind == kind) found.push_back(call);
    }
    return found;
  }

  Runtime runtime_;
};

TEST_F(CompiledRules, ADecodersAttentionSkipsNothing) {
  for (const StepPhase phase : {StepPhase::forward, StepPhase::backward}) {
    int fused = 0;
    for (const LoweredCall& call : calls(small(), OpKind::attention, phase)) {
      if (call.call.kernel != KernelClass::attention) continue;
      ++fused;
      EXPECT_FALSE(call.call.attention().causal);
      EXPECT_TRUE(call.call.attention().mask);  // PyTorch compiles the causal mask into a tensor
    }
    EXPECT_EQ(fused, 1);
  }
}

TEST_F(CompiledRules, AnEncodersAttentionIsTakenApartInFp32) {
  ModelSpec spec = small();
  spec.kind = ModelKind::encoder;
  spec.head = HeadKind::masked_lm;
  std::vector<GemmShape> products;
  for (const StepPhase phase : {StepPhase::forward, StepPhase::backward}) {
    for (const LoweredCall& call : calls(spec, OpKind::attention, phase)) {
      EXPECT_NE(call.call.kernel, KernelClass::attention);
      if (call.call.kernel != KernelClass::gemm) continue;
      EXPECT_EQ(call.call.dtype, DType::fp32);
      products.push_back(call.call.gemm());
    }
  }
  ASSERT_EQ(products.size(), 6u);  // QK^T, PV; dV, dP, dQ, dK: each 2 x 4 products of 128 x 128 x 64
  for (const GemmShape& product : products) {
    EXPECT_EQ(product.batch, 8);
    EXPECT_EQ(product.m * product.n * product.k, 128 * 128 * 64);
  }
}

TEST_F(CompiledRules, SumsBelongToNormsAndOddLogitsArePadded) {
  EXPECT_TRUE(calls(small(), OpKind::residual, StepPhase::forward).empty());
  const auto norms = calls(small(), OpKind::layernorm, StepPhase::forward);
  ASSERT_FALSE(norms.empty());
  EXPECT_EQ(norms.front().call.pointwise().numel, 4 * 256 * 256);  // two tensors read, two written: 2 x 128 tokens of 256
  int pads = 0;
  for (const LoweredCall& call : calls(small(), OpKind::lm_head, StepPhase::backward)) {
    if (call.part == "pad") ++pads;
    if (call.call.kernel == KernelClass::gemm) {
      EXPECT_EQ(std::max({call.call.gemm().m, call.call.gemm().n, call.call.gemm().k}), 8192);
    }
  }
  EXPECT_EQ(pads, 2);
  ModelSpec even = small();
  even.vocab = 8192;
  for (const LoweredCall& call : calls(even, OpKind::lm_head, StepPhase::backward)) EXPECT_NE(call.part, "pad");
}

}  // namespace
}  // namespace rooftile
