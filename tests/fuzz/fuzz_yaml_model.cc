#include <cstdint>
#include <string_view>

#include "tests/fuzz/fuzz_model.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto spec = rooftile::read_yaml_model(text, "fuzz");
  if (spec) rooftile::exercise(*spec);
  return 0;
}
