// The protobuf wire format, as much of it as an ONNX file needs: tags, varints, length-delimited fields. Nothing is copied: fields are views into the bytes, so skipping a
// weight of a gigabyte is one addition to a pointer. (Encoding: protobuf.dev/programming-guides/encoding.)
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "estimator/core/result.h"

namespace rooftile::onnx {

// A regular file, mapped read-only; only the pages that are looked at are read from disk. Errors (invalid): missing, not a regular file, empty.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& file);
  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  std::size_t size_ = 0;
};

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  std::uint32_t number = 0;
  WireType type = WireType::varint;
  std::uint64_t number_value = 0;  // varint, fixed64, fixed32: the raw bits
  std::string_view bytes;          // length-delimited payload

  std::int64_t as_int() const { return static_cast<std::int64_t>(number_value); }
  float as_float() const {
    const auto bits = static_cast<std::uint32_t>(number_value);
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  double as_double() const {
    double value = 0;
    std::memcpy(&value, &number_value, sizeof value);
    return value;
  }
};

// Walks the fields of one message. `next` gives false at the end and at the first malformed byte; `broken` tells which.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : at_(message.data()), end_(message.data() + message.size()) {}
  bool next(Field& field);
  bool broken() const { return broken_; }
  bool at_end() const { return at_ == end_; }

  // One varint, for packed fields: 0x96 0x01 is 150.
  bool varint(std::uint64_t& value);
  bool fixed(std::size_t size, std::uint64_t& value);

 private:
  bool stop() {
    broken_ = true;
    return false;
  }
  const char* at_;
  const char* end_;
  bool broken_ = false;
};

}  // namespace rooftile::onnx
