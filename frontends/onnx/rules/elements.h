// Arithmetic on the elements that shapes are computed with. Whatever is not known, or passes 63 bits, becomes unknown.
#pragma once

#include "frontends/onnx/value.h"

namespace rooftile::onnx::rules {

// `real`: the tensor holds floating-point numbers, so that a quotient is not truncated.
Element add_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element subtract_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element multiply_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element divide_elements(DimContext& dims, const Element& a, const Element& b, bool real);  // integers truncate towards zero: -7 / 2 == -3
Element modulo_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element power_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element least_element(DimContext& dims, const Element& a, const Element& b, bool real);
Element greatest_element(DimContext& dims, const Element& a, const Element& b, bool real);
Element equal_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element less_elements(DimContext& dims, const Element& a, const Element& b, bool real);
Element convert_element(DimContext& dims, const Element& a, Elem to);

}  // namespace rooftile::onnx::rules
