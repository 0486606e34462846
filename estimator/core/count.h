// Exact counts (FLOPs, bytes, parameters). A whole job can pass 2^63 (Llama 3.1 405B on 16 M tokens is 4e19 FLOPs), so counts are 128-bit integers; the sizes they are
// made of are checked to fit in 63 bits when a graph is built (see checked.h), which leaves products of two sizes and a repeat count no way to overflow.
#pragma once

#include <cstdint>
#include <string>

namespace rooftile {

__extension__ typedef __int128 Count;

inline double to_double(Count value) { return static_cast<double>(value); }

// True when the value can be written as a JSON integer of 64 bits.
inline bool fits_int64(Count value) { return value <= static_cast<Count>(INT64_MAX) && value >= static_cast<Count>(INT64_MIN); }

// Decimal digits of the value: to_string(Count{12}) == "12".
std::string to_string(Count value);

}  // namespace rooftile
