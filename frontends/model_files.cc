#include "frontends/model_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "frontends/text_tree.h"

namespace rooftile {
namespace {

// A protobuf ModelProto begins with one of its fields: ir_version (1, varint), producer_name (2), graph (7) and so on; text never begins with these control bytes.
bool looks_like_protobuf(std::string_view bytes) {
  if (bytes.empty()) return false;
  const auto tag = static_cast<unsigned char>(bytes[0]);
  const bool field = tag == 0x08 || tag == 0x12 || tag == 0x1A || tag == 0x22 || tag == 0x28 || tag == 0x32 || tag == 0x3A || tag == 0x42 || tag == 0x72;
  if (!field) return false;
  if (tag == 0x08 || tag == 0x12 || tag == 0x1A) return true;  // control characters
  // '"', '(', '2', ':', 'B', 'r' are letters too: a binary file shows it soon.
  const std::string_view head = bytes.substr(0, 512);
  return std::any_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\n' && c != '\r' && c != '\t';
  });
}

}  // namespace

ModelFormat sniff_model(std::string_view bytes) {
  if (looks_like_protobuf(bytes)) return ModelFormat::onnx;
  if (bytes.substr(0, 3) == "\xEF\xBB\xBF") bytes.remove_prefix(3);
  const std::size_t first = bytes.find_first_not_of(" \t\r\n");
  // A list describes no model; as JSON it is refused with the right words.
  if (first != std::string_view::npos && bytes[first] == '[') return ModelFormat::hf_config;
  // A YAML flow map begins with a brace too, but its keys are bare words.
  if (first != std::string_view::npos && bytes[first] == '{') {
    const std::size_t next = bytes.find_first_not_of(" \t\r\n", first + 1);
    if (next == std::string_view::npos || bytes[next] == '"' || bytes[next] == '}') return ModelFormat::hf_config;
  }
  return ModelFormat::yaml;
}

namespace {

// A file opened so that nothing can block: a pipe that nobody writes to opens at once and is waited for with an end.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& file) : descriptor_(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

constexpr int kPipePatienceMs = 5000;

}  // namespace

Result<std::string> read_text(const std::filesystem::path& file, std::size_t limit) {
  const std::string name = file.string();
  const OpenFile open(file);
  if (open.get() < 0) return fail(ErrorCode::invalid, errno == ENOENT ? "no such file" : fmt::format("cannot be opened: {}", std::strerror(errno)), name);
  struct stat status {};
  if (::fstat(open.get(), &status) != 0) return fail(ErrorCode::invalid, fmt::format("cannot be read: {}", std::strerror(errno)), name);
  if (S_ISDIR(status.st_mode)) return fail(ErrorCode::invalid, "is a folder, not a file", name);
  const bool pipe = S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  if (!S_ISREG(status.st_mode) && !pipe) return fail(ErrorCode::invalid, "is a device, not a file", name);
  const auto too_large = [&] { return fail(ErrorCode::invalid, fmt::format("over {} bytes, the most that are read", limit), name); };
  std::string text;
  if (!pipe) {
    if (static_cast<std::size_t>(status.st_size) > limit) return too_large();
    text.reserve(static_cast<std::size_t>(status.st_size));
  }
  char block[1 << 14];
  while (true) {
    if (pipe) {
      pollfd ready = {open.get(), POLLIN, 0};
      if (::poll(&ready, 1, kPipePatienceMs) == 0) return fail(ErrorCode::invalid, fmt::format("is a pipe from which nothing came for {} s", kPipePatienceMs / 1000), name);
    }
    const ssize_t got = ::read(open.get(), block, sizeof block);
    if (got == 0) break;
    if (got < 0 && (errno == EINTR || (pipe && errno == EAGAIN))) continue;
    if (got < 0) return fail(ErrorCode::invalid, fmt::format("cannot be read: {}", std::strerror(errno)), name);
    if (text.size() + static_cast<std::size_t>(got) > limit) return too_large();
    text.append(block, static_cast<std::size_t>(got));
  }
  return text;
}

std::string read_head(const std::filesystem::path& file) {
  const OpenFile open(file);
  struct stat status {};
  if (open.get() < 0 || ::fstat(open.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};  // what a pipe gives could not be read again
  char head[512];
  const ssize_t got = ::read(open.get(), head, sizeof head);
  return got > 0 ? std::string(head, static_cast<std::size_t>(got)) : std::string();
}

}  // namespace rooftile
