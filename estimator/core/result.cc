#include "estimator/core/result.h"

namespace rooftile {

std::string describe(const Error& error) {
  std::string text;
  if (!error.place.empty()) text += error.place + ": ";
  text += error.message;
  if (!error.hint.empty()) text += "\n  " + error.hint;
  return text;
}

}  // namespace rooftile
