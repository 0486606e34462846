// The one place that knows what valid UTF-8 is.
#pragma once

#include <cstddef>
#include <string_view>

namespace rooftile {

// Length of the valid UTF-8 sequence at the start of `text` (1 to 4), or 0 when there is none: cut-off and overlong forms, surrogates and code points above U+10FFFF are
// invalid. utf8_length("é...") == 2, utf8_length("\xff") == 0. `text` must not be empty.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](std::size_t i, unsigned char low = 0x80, unsigned char high = 0xBF) { return i < text.size() && byte(i) >= low && byte(i) <= high; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) return continues(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) && continues(2) ? 3 : 0;
  if (lead >= 0xF0 && lead <= 0xF4) return continues(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) && continues(2) && continues(3) ? 4 : 0;
  return 0;
}

}  // namespace rooftile
