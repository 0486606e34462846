// Errors are values: what is wrong, where, and what to try. Exceptions stay at the borders (yaml-cpp, JSON, protobuf) and are turned into these.
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace rooftile {

// The process exit code that each kind of error ends in (interface contract).
enum class ErrorCode : int {
  gate_failed = 1,
  usage = 2,
  invalid = 3,      // input is broken or impossible
  unsupported = 4,  // input is fine, this tool cannot do it
  unavailable = 5,  // device, library or package is missing
  internal = 70,
  interrupted = 130,
};

struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string message;  // what is wrong
  std::string place;    // "file:line:column", a node name, or an option; may be empty
  std::string hint;     // what to try; may be empty
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, std::string place = {}, std::string hint = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(place), std::move(hint)});
}

// "place: message\n  hint" as it is printed on stderr after "rooftile: ".
std::string describe(const Error& error);

// Something that was computed but that its reader must know: a default, an assumption, a part that is not modelled.
struct Warning {
  std::string code;  // stable snake_case word, e.g. "seq_above_max_positions"
  std::string message;
  bool operator==(const Warning&) const = default;
};

}  // namespace rooftile
