#include "frontends/trace/byte_source.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rooftile {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;
constexpr int kGzipOrZlib = 15 + 32;  // window bits: the largest window, either header

class FileSource : public ByteSource {
 public:
  explicit FileSource(std::FILE* stream) : stream_(stream) {}
  ~FileSource() override { std::fclose(stream_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  std::size_t read(char* to, std::size_t most) override { return std::fread(to, 1, most, stream_); }

 private:
  std::FILE* stream_;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string_view memory) : rest_(memory) {}
  std::size_t read(char* to, std::size_t most) override {
    const std::size_t got = std::min(most, rest_.size());
    if (got > 0) std::memcpy(to, rest_.data(), got);
    rest_.remove_prefix(got);
    return got;
  }

 private:
  std::string_view rest_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_bytes(const std::filesystem::path& file) {
  // Looked at before it is opened: opening a pipe would wait for its writer, and a trace is read more than once.
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0)
    return fail(ErrorCode::invalid, errno == ENOENT ? "no such file" : fmt::format("cannot be opened: {}", std::strerror(errno)), file.string());
  if (S_ISDIR(status.st_mode)) return fail(ErrorCode::invalid, "is a folder, not a file", file.string());
  if (!S_ISREG(status.st_mode)) return fail(ErrorCode::invalid, "is not a plain file; a trace is read more than once", file.string(), "save it to a file first");
  std::FILE* stream = std::fopen(file.c_str(), "rb");
  if (stream == nullptr) return fail(ErrorCode::invalid, fmt::format("cannot be opened: {}", std::strerror(errno)), file.string());
  return std::make_unique<FileSource>(stream);
}

std::unique_ptr<ByteSource> open_memory(std::string_view memory) { return std::make_unique<MemorySource>(memory); }

struct UnpackedBuffer::Inflater {
  z_stream stream = {};
  bool open = false, ended = false;  // ended: at the end of a member; another may follow
};

UnpackedBuffer::UnpackedBuffer(ByteSource& source, std::uint64_t most, std::size_t longest_token)
    : source_(source), left_(most), longest_token_(longest_token), packed_(kBlock), text_(kBlock) {}

UnpackedBuffer::~UnpackedBuffer() {
  if (inflater_ && inflater_->open) ::inflateEnd(&inflater_->stream);
}

std::size_t UnpackedBuffer::fill() {
  if (inflater_) return inflate();
  if (started_) return source_.read(text_.data(), text_.size());
  started_ = true;
  const std::size_t got = source_.read(packed_.data(), packed_.size());
  const bool gzip = got >= 2 && static_cast<unsigned char>(packed_[0]) == 0x1f && static_cast<unsigned char>(packed_[1]) == 0x8b;
  if (!gzip) {
    std::copy_n(packed_.begin(), got, text_.begin());
    return got;
  }
  inflater_ = std::make_unique<Inflater>();
  if (::inflateInit2(&inflater_->stream, kGzipOrZlib) != Z_OK) {
    problem_ = "zlib cannot be started";
    return 0;
  }
  inflater_->open = true;
  inflater_->stream.next_in = reinterpret_cast<Bytef*>(packed_.data());
  inflater_->stream.avail_in = static_cast<uInt>(got);
  return inflate();
}

std::size_t UnpackedBuffer::inflate() {
  z_stream& stream = inflater_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(text_.data());
  stream.avail_out = static_cast<uInt>(text_.size());
  while (stream.avail_out > 0) {
    if (stream.avail_in == 0) {
      stream.next_in = reinterpret_cast<Bytef*>(packed_.data());
      stream.avail_in = static_cast<uInt>(source_.read(packed_.data(), packed_.size()));
      if (stream.avail_in == 0) {
        if (!inflater_->ended) problem_ = "the gzip file ends early: it was cut off, or is still being written";
        break;
      }
    }
    if (inflater_->ended) {
      // Further members of a file that was written in pieces; zeros that pad a file are passed over.
      if (*stream.next_in == 0) {
        ++stream.next_in, --stream.avail_in;
        continue;
      }
      ::inflateReset(&stream);
      inflater_->ended = false;
    }
    const int status = ::inflate(&stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      inflater_->ended = true;
    } else if (status != Z_OK) {
      problem_ = fmt::format("broken gzip data ({})", stream.msg != nullptr ? stream.msg : "no further reason");
      break;
    }
  }
  return text_.size() - stream.avail_out;
}

bool UnpackedBuffer::within_limits(std::size_t got) {
  if (got > left_) {
    problem_ = "more than the bytes that are read at most";
    return false;
  }
  left_ -= got;
  const char* at = text_.data();
  const char* const end = at + got;
  while (at < end) {
    const char* quote = static_cast<const char*>(std::memchr(at, '"', static_cast<std::size_t>(end - at)));
    run_ += static_cast<std::size_t>((quote != nullptr ? quote + 1 : end) - at);
    if (run_ > longest_token_) {
      problem_ = fmt::format("over {} bytes without a quotation mark", longest_token_);
      return false;
    }
    if (quote == nullptr) break;
    // An escaped mark does not end a string.
    if ((quote == text_.data() ? last_ : quote[-1]) != '\\') run_ = 0;
    at = quote + 1;
  }
  last_ = end[-1];
  return true;
}

UnpackedBuffer::int_type UnpackedBuffer::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  if (!problem_.empty()) return traits_type::eof();
  const std::size_t got = fill();
  if (got == 0 || !within_limits(got)) return traits_type::eof();
  setg(text_.data(), text_.data(), text_.data() + got);
  return traits_type::to_int_type(*gptr());
}

}  // namespace rooftile
