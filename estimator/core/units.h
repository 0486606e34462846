// The few unit types that keep the places honest where raw numbers would mix: seconds, bytes, FLOPs and their rates. No unit library: only the operations that make sense.
#pragma once

#include <compare>

namespace rooftile {

template <typename Tag>
struct Unit {
  double value = 0;
  constexpr auto operator<=>(const Unit&) const = default;
  constexpr Unit operator+(Unit other) const { return {value + other.value}; }
  constexpr Unit operator-(Unit other) const { return {value - other.value}; }
  constexpr Unit operator*(double factor) const { return {value * factor}; }
  constexpr double operator/(Unit other) const { return value / other.value; }
};

using Seconds = Unit<struct SecondsTag>;
using Bytes = Unit<struct BytesTag>;
using Flops = Unit<struct FlopsTag>;
using FlopRate = Unit<struct FlopRateTag>;  // FLOP/s
using ByteRate = Unit<struct ByteRateTag>;  // B/s
using Hertz = Unit<struct HertzTag>;

// 989.4 TFLOP/s needs 1 s for 989.4 TFLOP: (Flops{989.4e12} / FlopRate{989.4e12}).value == 1.
constexpr Seconds operator/(Flops flops, FlopRate rate) { return {flops.value / rate.value}; }
constexpr Seconds operator/(Bytes bytes, ByteRate rate) { return {bytes.value / rate.value}; }

}  // namespace rooftile
