// Writes JSON text straight into a string: no tree in between, because sweeps print tens of thousands of predictions in a second.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "estimator/core/count.h"

namespace rooftile {

// Appends `text` as a JSON string with its quotes. The result is valid UTF-8 whatever the bytes: those that are not part of a valid sequence become \u00XX of their value.
void append_json_string(std::string& out, std::string_view text);

// Appends a number that reads back to the same double; an infinity or NaN becomes null (JSON has none).
void append_json_number(std::string& out, double value);

// Appends an exact count: an integer where it fits in 64 bits, else a double.
void append_json_count(std::string& out, Count value);

// An object or array being written. Commas are the writer's business; the caller keeps the nesting right (open and close in pairs).
//   JsonWriter json(out); json.open(); json.field("tokens", Count{4096}); json.close();   gives {"tokens": 4096}
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  void open() { separate(), begin('{'); }
  void open(std::string_view key) { name(key), begin('{'); }
  void close() { end('}'); }
  void open_item() { open(); }  // of a list
  void open_list() { separate(), begin('['); }
  void open_list(std::string_view key) { name(key), begin('['); }
  void close_list() { end(']'); }

  void field(std::string_view key, std::string_view value) { name(key), append_json_string(out_, value); }
  void field(std::string_view key, const char* value) { field(key, std::string_view(value)); }
  void field(std::string_view key, double value) { name(key), append_json_number(out_, value); }
  void field(std::string_view key, Count value) { name(key), append_json_count(out_, value); }
  void field(std::string_view key, std::int64_t value) { field(key, Count{value}); }
  void field(std::string_view key, int value) { field(key, Count{value}); }
  void field(std::string_view key, bool value) { name(key), out_ += value ? "true" : "false"; }
  void tile_field(std::string_view key, int rows, int cols);  // "128x256"
  void null_field(std::string_view key) { name(key), out_ += "null"; }

  void item(std::string_view value) { separate(), append_json_string(out_, value); }
  void item(std::int64_t value) { separate(), append_json_count(out_, value); }
  void new_line() { break_line_ = true; }  // the next element begins on a new line

 private:
  void separate();
  void name(std::string_view key);
  void begin(char bracket);
  void end(char bracket);

  std::string& out_;
  bool first_ = true, break_line_ = false;
};

}  // namespace rooftile
