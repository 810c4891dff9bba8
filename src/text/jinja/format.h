// Python's three ways to format text: 'text' % values, 'text'.format(values), and strftime.
#pragma once

#include <ctime>
#include <string>

#include "text/jinja/runtime.h"

namespace nibble::text::jinja {

Value format_percent(Runtime& runtime, const Value& pattern, const Value& values);
Value format_braces(Runtime& runtime, const Value& pattern, const Args& args);
std::string format_time(const std::string& pattern, const std::tm& time);  // in English, whatever the locale

}  // namespace nibble::text::jinja
