#include "frontends/trace/event_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace rooftile {
namespace {

using Json = nlohmann::json;

// Where in the document a value stands.
enum class Place : std::uint8_t { outside, document, events, event, arguments, types, values, dims, strides, grid, block, devices, device, other };

constexpr std::size_t kMostArguments = 4096;  // of one operator
constexpr std::size_t kMostText = 4096;       // bytes kept of a name or a scalar

// nlohmann's parser calls one function for each token.
class EventHandler : public nlohmann::json_sax<Json> {
 public:
  explicit EventHandler(EventStream& stream) : stream_(stream) {}

  bool is_trace() const { return is_trace_; }
  const std::optional<Error>& error() const { return error_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return integer(value); }
  bool number_unsigned(number_unsigned_t value) override { return integer(value > kLargest ? static_cast<std::int64_t>(kLargest) : static_cast<std::int64_t>(value)); }
  bool number_float(number_float_t value, const string_t&) override {
    if (place() == Place::event) real(value);
    if (place() == Place::device && key_ == "totalGlobalMem") device_.memory_bytes = value;
    return true;
  }
  bool binary(binary_t&) override { return true; }

  bool string(string_t& value) override {
    if (value.size() > kMostText) value.resize(kMostText);
    switch (place()) {
      case Place::event:
        if (key_ == "ph")
          event_.phase.swap(value);
        else if (key_ == "cat")
          event_.category.swap(value);
        else if (key_ == "name")
          event_.name.swap(value);
        break;
      case Place::types:
        if (TraceArgument* argument = next_argument(types_)) argument->type.swap(value);
        break;
      case Place::values:
        if (TraceArgument* argument = next_argument(values_)) argument->value.swap(value);
        break;
      case Place::device:
        if (key_ == "name") device_.name.swap(value);
        break;
      default:
        break;
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place()) {
      case Place::outside:
        return enter(stack_.empty() ? Place::document : Place::other);
      case Place::events:
        event_ = {};
        types_ = values_ = integers_ = 0;
        return enter(Place::event);
      case Place::event:
        return enter(key_ == "args" ? Place::arguments : Place::other);
      case Place::devices:
        device_ = {};
        return enter(Place::device);
      default:
        return enter(Place::other);
    }
  }

  bool key(string_t& value) override {
    key_.swap(value);
    return true;
  }

  bool end_object() override {
    const Place left = leave();
    if (left == Place::device && stream_.devices != nullptr && stream_.devices->size() < kMostArguments) stream_.devices->push_back(device_);
    if (left != Place::event) return true;
    const auto taken = stream_.each(event_);
    if (!taken) error_ = taken.error();
    return taken.has_value();
  }

  bool start_array(std::size_t) override {
    switch (place()) {
      case Place::outside:
        is_trace_ = true;  // the events alone, without a document around them
        return enter(Place::events);
      case Place::document:
        if (key_ == "traceEvents") {
          is_trace_ = true;
          return enter(Place::events);
        }
        return enter(key_ == "deviceProperties" ? Place::devices : Place::other);
      case Place::arguments:
        return enter(list_of_arguments());
      case Place::dims:
      case Place::strides:
        return enter_tensor(place());
      default:
        return enter(Place::other);
    }
  }

  bool end_array() override {
    const Place left = leave();
    if (left == Place::dims || left == Place::strides) --level_;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& problem) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ...": only the reason is worth reading.
    std::string reason = problem.what();
    if (const std::size_t at = reason.find("syntax error"); at != std::string::npos)
      reason.erase(0, at);
    else if (const std::size_t close = reason.find("] "); close != std::string::npos)
      reason.erase(0, close + 2);
    std::string shown;
    for (const char c : reason.substr(0, 160)) shown += c >= ' ' && c <= '~' ? c : '?';
    error_ = Error{ErrorCode::invalid, "not valid JSON: " + shown, fmt::format("{}: byte {}", stream_.file, position), ""};
    return false;
  }

 private:
  static constexpr number_unsigned_t kLargest = std::numeric_limits<std::int64_t>::max();

  Place place() const { return stack_.empty() ? Place::outside : stack_.back(); }

  bool enter(Place place) {
    if (stack_.size() >= stream_.limits.depth) {
      error_ = Error{ErrorCode::invalid, fmt::format("nested deeper than {} levels", stream_.limits.depth), stream_.file, "is this a profiler trace?"};
      return false;
    }
    stack_.push_back(place);
    return true;
  }
  Place leave() {
    const Place left = place();
    if (!stack_.empty()) stack_.pop_back();
    return left;
  }

  // The spelling changed between releases of PyTorch.
  Place list_of_arguments() {
    level_ = 0, argument_ = 0;
    if (key_ == "Input type" || key_ == "Input types") return Place::types;
    if (key_ == "Concrete Inputs") return Place::values;
    if (key_ == "grid") return Place::grid;
    if (key_ == "block") return Place::block;
    if (key_ == "Input Dims" || key_ == "Input dims") return level_ = 1, Place::dims;
    if (key_ == "Input Strides") return level_ = 1, Place::strides;
    return Place::other;
  }

  TraceArgument* next_argument(std::size_t& at) {
    std::vector<TraceArgument>& arguments = event_.op.arguments;
    if (at >= kMostArguments) return nullptr;
    if (at >= arguments.size()) arguments.resize(at + 1);
    return &arguments[at++];
  }

  // dims: [[16, 768], [], [[2, 3], [2, 3]]]: a list at level 2 is one tensor's, or holds the lists of several.
  bool enter_tensor(Place place) {
    ++level_;
    if (level_ == 2) {
      current_ = next_argument(argument_);
      list_item_ = 0;
    } else if (level_ == 3 && current_ != nullptr) {
      current_->list = true;
      ++list_item_;
    }
    return enter(place);
  }

  void add_size(Place place, std::int64_t value) {
    if (current_ == nullptr || level_ < 2 || level_ > 3 || integers_ >= stream_.limits.integers) return;
    const std::size_t item = level_ == 2 ? 0 : list_item_ - 1;
    if (level_ == 2 && current_->list) return;
    if (item >= kMostArguments) return;
    if (current_->tensors.size() <= item) current_->tensors.resize(item + 1);
    (place == Place::dims ? current_->tensors[item].dims : current_->tensors[item].strides).push_back(value);
    ++integers_;
  }

  void real(double value) {
    if (key_ == "ts") event_.timestamp_us = value;
    if (key_ == "dur") event_.duration_us = value;
  }

  bool integer(std::int64_t value) {
    const auto narrow = [](std::int64_t v) { return static_cast<std::int32_t>(std::clamp<std::int64_t>(v, 0, std::numeric_limits<std::int32_t>::max())); };
    const auto id = [](std::int64_t v) { return v > 0 ? static_cast<std::uint64_t>(v) : 0; };
    switch (place()) {
      case Place::event:
        real(static_cast<double>(value));
        break;
      case Place::arguments:
        if (key_ == "External id" || key_ == "external id")
          event_.external_id = id(value);
        else if (key_ == "correlation")
          event_.correlation = id(value);
        else if (key_ == "stream")
          event_.stream = value;
        else if (key_ == "device")
          event_.device = value;
        break;
      case Place::grid:
      case Place::block:
        if (argument_ < 3) (place() == Place::grid ? event_.grid : event_.block)[argument_++] = narrow(value);
        break;
      case Place::dims:
      case Place::strides:
        add_size(place(), value);
        break;
      case Place::device:
        if (key_ == "id")
          device_.id = value;
        else if (key_ == "numSms")
          device_.sms = narrow(value);
        else if (key_ == "totalGlobalMem")
          device_.memory_bytes = static_cast<double>(value);
        else if (key_ == "computeMajor")
          device_.compute_capability += 10 * std::min(narrow(value), 100);
        else if (key_ == "computeMinor")
          device_.compute_capability += std::min(narrow(value), 9);
        break;
      default:
        break;
    }
    return true;
  }

  EventStream& stream_;
  std::vector<Place> stack_;
  std::string key_;
  TraceEvent event_;
  TraceDevice device_;
  std::size_t types_ = 0, values_ = 0, argument_ = 0, list_item_ = 0, integers_ = 0;
  int level_ = 0;
  TraceArgument* current_ = nullptr;
  bool is_trace_ = false;
  std::optional<Error> error_;
};

}  // namespace

Result<void> EventStream::read(ByteSource& source) {
  UnpackedBuffer buffer(source, limits.bytes, limits.token_bytes);
  std::istream stream(&buffer);
  EventHandler handler(*this);
  const bool whole = Json::sax_parse(stream, &handler);
  // What stopped the bytes explains what the parser then missed.
  if (!buffer.problem().empty()) return fail(ErrorCode::invalid, buffer.problem(), file);
  if (handler.error()) return tl::unexpected<Error>(*handler.error());
  if (!whole) return fail(ErrorCode::invalid, "not valid JSON", file);
  if (!handler.is_trace()) return fail(ErrorCode::invalid, "not a profiler trace: there is no list 'traceEvents'", file, "write one with torch.profiler's export_chrome_trace");
  return {};
}

}  // namespace rooftile
