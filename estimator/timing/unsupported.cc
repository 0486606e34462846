#include "estimator/timing/timer.h"

namespace rooftile {
namespace {

// The first architectures whose matmul units take a dtype (NVIDIA architecture white papers: Volta fp16; Turing int8; Ampere bf16, tf32, fp64; Ada and Hopper fp8; Blackwell fp4).
std::string_view first_with(DType dtype) {
  switch (dtype) {
    case DType::fp16:
      return "Volta or later";
    case DType::int8:
    case DType::int4:
      return "Turing or later";
    case DType::bf16:
    case DType::tf32:
      return "Ampere or later";
    case DType::fp64:
      return "a data-centre GPU";
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      return "Ada, Hopper or later";
    case DType::fp4:
      return "Blackwell or later";
    default:
      return "";
  }
}

std::string needs(DType dtype, std::string_view what, const Device& device) {
  return std::string(what) + " in " + std::string(name_of(dtype)) + " needs " + std::string(first_with(dtype)) + "; " + (device.name.empty() ? device.id : device.name) +
         " has no such unit";
}

std::string gemm_reason(const KernelCall& call, const Device& device) {
  const DType dtype = call.dtype;
  if (first_with(dtype).empty() && dtype != DType::fp32) return "there is no matmul kernel in " + std::string(name_of(dtype));
  if (dtype == DType::fp32) return device.vector_fp32.flop_per_clock_per_sm > 0 || device.rate(dtype).flop_per_clock_per_sm > 0 ? "" : "the device file gives no fp32 rate";
  if (device.rate(dtype).flop_per_clock_per_sm <= 0) return needs(dtype, "a matmul", device);
  return "";
}

std::string attention_reason(const KernelCall& call, const Device& device) {
  const AttentionShape& shape = call.attention();
  if (std::string reason = gemm_reason(call, device); !reason.empty()) return reason;
  if (shape.kernel == AttentionKernel::fastest || shape.kernel == AttentionKernel::standard) return "";
  const std::string kernel(name_of(shape.kernel));
  const bool half = call.dtype == DType::bf16 || call.dtype == DType::fp16;
  const bool fp8 = bits_of(call.dtype) == 8 && call.dtype != DType::int8;
  if (!half && !(fp8 && shape.kernel != AttentionKernel::flash2)) return kernel + " attention has no kernel in " + std::string(name_of(call.dtype)) + "; use kernel=standard";
  if (shape.kernel == AttentionKernel::flash3 && device.architecture != Architecture::hopper) return "flash3 needs Hopper; use kernel=cudnn or kernel=flash2";
  if (device.architecture < Architecture::ampere) return kernel + " attention needs Ampere or later; use kernel=standard";
  return "";
}

}  // namespace

std::string unsupported_reason(const KernelCall& call, const Device& device) {
  if (is_torch_only(call.kernel) && call.impl == Impl::rooftile) return "there is no kernel of this project for " + std::string(name_of(call.kernel)) + "; use impl=torch";
  switch (call.kernel) {
    case KernelClass::gemm:
      return gemm_reason(call, device);
    case KernelClass::attention:
      return attention_reason(call, device);
    default:
      return "";
  }
}

}  // namespace rooftile
