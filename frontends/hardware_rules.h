// Reads the lowering rules of a runtime file (see docs/adr/0009-runtime-rules.md).
#pragma once

#include <vector>

#include "estimator/hardware/rule.h"
#include "frontends/hardware_reader.h"

namespace rooftile {

// The rules of a list node, in order, and one Fact for each (how many kernels, with the rule's provenance). Errors are kept by the reader: an unknown operator, kind, word or size
// (with a suggestion), a rule that stands twice, an expression that is none.
std::vector<LoweringRule> read_rules(HardwareReader& reader, const YamlNode& list, std::vector<Fact>& facts);

}  // namespace rooftile
