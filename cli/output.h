// Where a report goes: standard output or a file, and what the terminal there can show.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "estimator/core/result.h"

namespace rooftile {

enum class ColorChoice : std::uint8_t { automatic, always, never };
Result<ColorChoice> parse_color(std::string_view text);

class Output {
 public:
  // Opens `file`, or takes standard output when it is empty or "-". Errors: unavailable when the file cannot be written.
  static Result<Output> open(const std::string& file);
  Output(Output&& other) noexcept;
  Output& operator=(Output&&) = delete;
  ~Output();

  bool color(ColorChoice choice) const;  // NO_COLOR, TERM=dumb and pipes turn it off
  std::size_t width() const;             // of the terminal, else $COLUMNS, else 120

  // False when nobody reads any more (a closed pipe) or the disk is full: stop then; finish() says which.
  bool write(std::string_view text);
  // Flushes. A reader that went away is no error.
  Result<bool> finish();

 private:
  Output(std::FILE* stream, std::string file) : stream_(stream), file_(std::move(file)) {}
  std::FILE* stream_;
  std::string file_;
  int error_ = 0;
};

// "rooftile: place: message" and the hint on a second line, to stderr; gives the exit code.
int report_error(const Error& error);

}  // namespace rooftile
