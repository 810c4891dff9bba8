// Finds stop strings in streamed text, also across token boundaries: text that may yet become a stop string is held
// back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nibble::engine {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // empty strings are ignored

  // Takes new text and returns what may be shown. After a stop string has been met, stopped() is true, the text before
  // it has been returned and everything after it is dropped.
  std::string push(std::string_view text);
  // The text still held back, at the end of a generation that met no stop string.
  std::string flush();

  bool stopped() const { return stopped_; }
  const std::string& matched() const { return matched_; }  // the stop string that was met

 private:
  std::vector<std::string> stops_;
  std::string held_;
  std::string matched_;
  bool stopped_ = false;
};

}  // namespace nibble::engine
