#include "frontends/onnx/recognise.h"

namespace rooftile::onnx {

void recognise(const Program&, Trace&, const RecogniseOptions&) {}

}  // namespace rooftile::onnx
