#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "report/quantity.h"

namespace rooftile {

Result<ColorChoice> parse_color(std::string_view text) {
  if (text.empty() || text == "auto") return ColorChoice::automatic;
  if (text == "always") return ColorChoice::always;
  if (text == "never") return ColorChoice::never;
  return fail(ErrorCode::usage, "'" + std::string(text) + "' is not auto, always or never", "--color");
}

Result<Output> Output::open(const std::string& file) {
  if (file.empty() || file == "-") return Output(stdout, "standard output");
  std::FILE* stream = std::fopen(file.c_str(), "wb");
  if (stream == nullptr) return fail(ErrorCode::unavailable, std::string("cannot be written: ") + std::strerror(errno), file);
  return Output(stream, file);
}

Output::Output(Output&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), file_(std::move(other.file_)), error_(other.error_) {}

Output::~Output() {
  if (stream_ != nullptr && stream_ != stdout) std::fclose(stream_);
}

bool Output::color(ColorChoice choice) const {
  if (choice != ColorChoice::automatic) return choice == ColorChoice::always;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term == nullptr || std::strcmp(term, "dumb") == 0) return false;
  return isatty(fileno(stream_)) == 1;
}

std::size_t Output::width() const {
  winsize size{};
  if (isatty(fileno(stream_)) == 1 && ioctl(fileno(stream_), TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    const long width = std::strtol(columns, nullptr, 10);
    if (width >= 40 && width <= 1000) return static_cast<std::size_t>(width);
  }
  return 120;
}

bool Output::write(std::string_view text) {
  if (error_ != 0) return false;
  if (std::fwrite(text.data(), 1, text.size(), stream_) != text.size()) error_ = errno != 0 ? errno : EIO;
  return error_ == 0;
}

Result<bool> Output::finish() {
  if (error_ == 0 && std::fflush(stream_) != 0) error_ = errno != 0 ? errno : EIO;
  if (error_ == EPIPE) return true;
  if (error_ != 0) return fail(ErrorCode::unavailable, std::string("cannot be written: ") + std::strerror(error_), file_);
  return true;
}

int report_error(const Error& error) {
  std::string text = "rooftile: ";
  if (!error.place.empty()) text += printable(error.place) + ": ";
  // Messages may have lines of their own; what they quote may hold foreign bytes.
  const auto append_lines = [&](std::string_view lines, std::string_view indent) {
    for (std::size_t i = 0; i <= lines.size();) {
      const std::size_t end = std::min(lines.find('\n', i), lines.size());
      if (i > 0 || !indent.empty()) text += "\n" + std::string(indent.empty() ? "  " : indent);
      text += printable(lines.substr(i, end - i));
      i = end + 1;
    }
  };
  append_lines(error.message, "");
  if (!error.hint.empty()) append_lines(error.hint, "  ");
  text += "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  return static_cast<int>(error.code);
}

}  // namespace rooftile
