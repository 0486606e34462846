// Names in files may hold any bytes; what is printed is valid UTF-8, at most 120 bytes of it.
#pragma once

#include <string>
#include <string_view>

namespace rooftile::onnx {

// Control characters and bytes that are not UTF-8 become \xNN. readable("a\xff") == "a\\xff".
std::string readable(std::string_view text, std::size_t limit = 120);

}  // namespace rooftile::onnx
