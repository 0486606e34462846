#include "cli/version.h"

namespace rooftile {

std::string_view version() { return ROOFTILE_VERSION; }

}  // namespace rooftile
