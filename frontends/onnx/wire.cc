#include "frontends/onnx/wire.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace rooftile::onnx {

Result<MappedFile> MappedFile::open(const std::filesystem::path& file) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return fail(ErrorCode::invalid, std::string("cannot be opened: ") + std::strerror(errno), file.string());
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return fail(ErrorCode::invalid, "not a regular file", file.string());
  }
  if (status.st_size == 0) {
    ::close(descriptor);
    return fail(ErrorCode::invalid, "the file is empty", file.string());
  }
  MappedFile mapped;
  mapped.size_ = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ::close(descriptor);
  if (data == MAP_FAILED) return fail(ErrorCode::invalid, std::string("cannot be mapped: ") + std::strerror(errno), file.string());
  mapped.data_ = static_cast<const char*>(data);
  // Weights lie between the records that are read; reading ahead would pull them in. Small files are read whole.
  ::madvise(data, mapped.size_, mapped.size_ > (16u << 20) ? MADV_RANDOM : MADV_WILLNEED);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

bool WireReader::varint(std::uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (at_ == end_) return stop();
    const auto byte = static_cast<unsigned char>(*at_++);
    if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return stop();
}

bool WireReader::fixed(std::size_t size, std::uint64_t& value) {
  if (static_cast<std::size_t>(end_ - at_) < size) return stop();
  value = 0;
  std::memcpy(&value, at_, size);
  at_ += size;
  return true;
}

bool WireReader::next(Field& field) {
  if (broken_ || at_ == end_) return false;
  std::uint64_t tag = 0;
  if (!varint(tag)) return false;
  field.number = static_cast<std::uint32_t>(tag >> 3);
  if (field.number == 0 || tag >> 32 != 0) return stop();
  field.bytes = {};
  field.number_value = 0;
  switch (tag & 7) {
    case 0:
      field.type = WireType::varint;
      return varint(field.number_value);
    case 1:
      field.type = WireType::fixed64;
      return fixed(8, field.number_value);
    case 5:
      field.type = WireType::fixed32;
      return fixed(4, field.number_value);
    case 2: {
      field.type = WireType::bytes;
      std::uint64_t length = 0;
      if (!varint(length)) return false;
      if (length > static_cast<std::uint64_t>(end_ - at_)) return stop();
      field.bytes = {at_, static_cast<std::size_t>(length)};
      at_ += length;
      return true;
    }
    default:  // groups are not used by ONNX
      return stop();
  }
}

}  // namespace rooftile::onnx
