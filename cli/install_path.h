// Where the installed data lies, found from the binary itself, so that a prefix may be moved or read-only.
#pragma once

#include <filesystem>

namespace rooftile {

// PREFIX/share/rooftile beside PREFIX/bin/rooftile; in a build tree the source folder above the binary. Empty when neither is there.
std::filesystem::path installed_data();

}  // namespace rooftile
