// Python's str methods as functions of text; what a method of the template language does with its arguments is in
// methods.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

// `characters`: the set to strip; nothing means whitespace.
std::string strip(std::string_view text, const std::optional<std::string>& characters, bool left, bool right);

// `limit` < 0: no limit. Without a separator runs of whitespace separate.
std::vector<std::string> split_space(Runtime& runtime, std::string_view text, std::int64_t limit, bool from_right);
std::vector<std::string> split(Runtime& runtime, std::string_view text, std::string_view separator, std::int64_t limit,
                               bool from_right);
std::vector<std::string> split_lines(Runtime& runtime, std::string_view text, bool keep_ends);
std::string replace(Runtime& runtime, std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t limit);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title_case(std::string_view text);  // str.title(): every run of cased letters
// str.isupper and str.islower: some cased letter, and none of another case.
bool is_all_of_case(std::string_view text, bool upper);
bool is_digit_character(char32_t code_point);  // str.isdigit for one: decimal digits, superscripts, circled ones

}  // namespace nibble::text::jinja
