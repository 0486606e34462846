#include "frontends/trace/tensor_view.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "frontends/trace/operator_call.h"

namespace rooftile {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 62;

}  // namespace

std::int64_t numel_of(const std::vector<std::int64_t>& dims) {
  std::int64_t product = 1;
  for (const std::int64_t size : dims) {
    if (size <= 0 || product > kMostElements / size) return 0;
    product *= size;
  }
  return product;
}

std::int64_t TensorView::numel() const { return numel_of(dims); }

bool TensorView::row_major() const { return std::is_sorted(strides.rbegin(), strides.rend()); }

bool TensorView::repeats() const { return std::find(strides.begin(), strides.end(), 0) != strides.end(); }

bool TensorView::contiguous() const {
  std::int64_t expected = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

bool TensorView::dense() const {
  std::vector<std::size_t> order(dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return strides[a] < strides[b]; });
  std::int64_t expected = 1;
  for (const std::size_t i : order) {
    if (strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

std::optional<TensorView> tensor_of(const TraceOperator& op, std::size_t index) {
  if (index >= op.arguments.size()) return std::nullopt;
  const TraceArgument& argument = op.arguments[index];
  if (argument.list || argument.tensors.size() != 1) return std::nullopt;
  const auto dtype = dtype_of_trace(argument.type);
  if (!dtype) return std::nullopt;
  const TraceTensor& tensor = argument.tensors.front();
  if (tensor.dims.empty() || numel_of(tensor.dims) == 0) return std::nullopt;
  TensorView view;
  view.dtype = *dtype;
  view.whole = tensor.dims;
  const bool with_strides = tensor.strides.size() == tensor.dims.size();  // old releases do not record them: taken as row-major
  std::int64_t row_major = numel_of(tensor.dims);
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    row_major /= tensor.dims[i];
    if (tensor.dims[i] == 1) continue;
    const std::int64_t stride = with_strides ? tensor.strides[i] : row_major;
    if (stride < 0) return std::nullopt;
    view.dims.push_back(tensor.dims[i]);
    view.strides.push_back(stride);
  }
  return view;
}

std::optional<std::int64_t> whole_of(const std::string& value) {
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || value.empty()) return std::nullopt;
  const std::string_view left(rest, static_cast<std::size_t>(end - rest));
  if (left.empty() || left == "." || left == ".0") return number;
  return std::nullopt;
}

std::optional<std::vector<std::int64_t>> list_of(const std::string& value) {
  if (value.size() < 2 || value.front() != '[' || value.back() != ']') return std::nullopt;
  std::vector<std::int64_t> list;
  const char* at = value.data() + 1;
  const char* const end = value.data() + value.size() - 1;
  while (at < end) {
    std::int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc()) return std::nullopt;
    list.push_back(number);
    at = rest;
    while (at < end && (*at == ',' || *at == ' ')) ++at;
  }
  return list;
}

}  // namespace rooftile
