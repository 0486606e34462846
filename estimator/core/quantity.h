// Numbers with units as people write them ("4.8 TB/s", "1830 MHz", "50 MiB", "2.8 us") to SI base units and back. Strict: kB is 1000 B, KiB is 1024 B, and what is neither
// (KB, Gb, mhz) is refused with the spelling that was meant.
#pragma once

#include <string>
#include <string_view>

#include "estimator/core/result.h"

namespace rooftile {

// A unit as a factor and the base unit it scales to: "TB/s" is {1e12, "B/s"}, "MiB" is {1048576, "B"}, "us" is {1e-6, "s"}, "%" is {0.01, "1"}.
struct UnitScale {
  double scale = 1;
  std::string base;
  bool operator==(const UnitScale&) const = default;
};

struct Quantity {
  double value = 0;  // in `unit`
  std::string unit;  // a base unit: "B", "B/s", "FLOP/s", "Hz", "s", "W", "FLOP/clock/SM", "1"
  bool operator==(const Quantity&) const = default;
};

// Scale of a unit: symbols joined by "/", each with an optional prefix. Symbols: B, bit (1/8 B), FLOP, Hz, s, W, J, and without prefix clock, SM, CTA, thread, warp, register,
// element, row, tile, token, kernel, rank, count, iteration, %, 1. Prefixes k M G T P E for all of the former, n u m for s, Ki Mi Gi Ti for B.
// Errors (invalid): an unknown symbol or prefix, with what was probably meant. parse_unit("TB/s") == {1e12, "B/s"}.
Result<UnitScale> parse_unit(std::string_view unit);

// A number, an optional blank and a unit (none: dimensionless). Digits may be grouped by '_' or ','. parse_quantity("989.4 TFLOP/s") == {989.4e12, "FLOP/s"}.
// Errors (invalid): no number, not finite, trailing text, a unit that parse_unit refuses.
Result<Quantity> parse_quantity(std::string_view text);

// As parse_quantity, and the unit must be `base`. parse_quantity_as("80 GB", "B") == 80e9.
Result<double> parse_quantity_as(std::string_view text, std::string_view base);

// The shortest spelling that parse_quantity reads back to exactly the same value, with a decimal prefix that leaves 1 to 999 in front where the unit takes one; bytes that are
// a whole number of KiB, MiB or GiB are written so. print_quantity({4.8e12, "B/s"}) == "4.8 TB/s"; print_quantity({52428800, "B"}) == "50 MiB".
std::string print_quantity(const Quantity& quantity);

}  // namespace rooftile
