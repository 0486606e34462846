// Bytes of a file or of memory, unpacked where they are gzip, as a stream that JSON is parsed from.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

#include "estimator/core/result.h"

namespace rooftile {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Up to `most` bytes; 0 at the end or where reading fails.
  virtual std::size_t read(char* to, std::size_t most) = 0;
};

// Errors (invalid): no such file, a folder or a device.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::filesystem::path& file);
std::unique_ptr<ByteSource> open_memory(std::string_view memory);

// Ends early, with a reason in problem(), at broken gzip, behind `most` unpacked bytes, and where more than `longest_token` bytes come without a quotation mark: a JSON token or a
// run of blanks that no profiler writes.
class UnpackedBuffer : public std::streambuf {
 public:
  UnpackedBuffer(ByteSource& source, std::uint64_t most, std::size_t longest_token);
  ~UnpackedBuffer() override;
  UnpackedBuffer(const UnpackedBuffer&) = delete;
  UnpackedBuffer& operator=(const UnpackedBuffer&) = delete;

  const std::string& problem() const { return problem_; }

 protected:
  int_type underflow() override;

 private:
  struct Inflater;
  std::size_t fill();
  std::size_t inflate();
  bool within_limits(std::size_t got);

  ByteSource& source_;
  std::uint64_t left_;
  std::size_t longest_token_, run_ = 0;
  std::vector<char> packed_, text_;
  std::unique_ptr<Inflater> inflater_;
  bool started_ = false;
  char last_ = 0;  // of the block before
  std::string problem_;
};

}  // namespace rooftile
