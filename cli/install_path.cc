#include "cli/install_path.h"

#include <system_error>

namespace rooftile {

std::filesystem::path installed_data() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = binary.parent_path();
  const fs::path installed = folder.parent_path() / "share" / "rooftile";
  if (fs::is_directory(installed / "hardware", error)) return installed;
  // A build tree lies within the sources: build/release/bin.
  fs::path above = folder;
  for (int level = 0; level < 6 && above.has_relative_path(); ++level, above = above.parent_path()) {
    if (fs::is_directory(above / "hardware" / "devices", error) && fs::is_directory(above / "models", error)) return above;
  }
  return {};
}

}  // namespace rooftile
