// Any bytes as an ONNX file: read, bound with every size at 2, and asked for its symbols. Nothing but values and errors may come out.
#include <cstddef>
#include <cstdint>
#include <string>

#include "frontends/onnx/onnx_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto model = rooftile::read_onnx_bytes(std::string(reinterpret_cast<const char*>(data), size), "fuzz.onnx");
  if (!model) return 0;
  std::map<std::string, std::int64_t> dims;
  if (const auto symbols = model->symbols()) {
    for (const auto& symbol : *symbols) dims[symbol.name] = 2;
  }
  (void)model->parameters();
  (void)model->macs_expression();
  (void)model->summarise(dims);
  rooftile::Options options;
  (void)model->bind(dims, options);
  options.attention = rooftile::AttentionKernel::standard;
  options.phase = rooftile::Phase::forward;
  (void)model->bind(dims, options);
  return 0;
}
