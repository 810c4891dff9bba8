// strftime.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/error.h"
#include "text/jinja/format.h"

namespace nibble::text::jinja {

std::string format_time(const std::string& pattern, const std::tm& time) {
  static constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                            "July",    "August",   "September", "October", "November", "December"};
  const std::string day = kDays[std::clamp(time.tm_wday, 0, 6)];
  const std::string month = kMonths[std::clamp(time.tm_mon, 0, 11)];
  const int hour12 = time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12;
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      text += pattern[i];
      continue;
    }
    const bool plain = i + 1 < pattern.size() && pattern[i + 1] == '-';  // %-d: without leading zeros
    i += plain ? 2 : 1;
    const auto two = [plain](int value) { return fmt::format(fmt::runtime(plain ? "{}" : "{:02}"), value); };
    switch (i < pattern.size() ? pattern[i] : '\0') {
      case 'Y':
        text += std::to_string(time.tm_year + 1900);
        break;
      case 'y':
        text += two(time.tm_year % 100);
        break;
      case 'm':
        text += two(time.tm_mon + 1);
        break;
      case 'd':
        text += two(time.tm_mday);
        break;
      case 'H':
        text += two(time.tm_hour);
        break;
      case 'I':
        text += two(hour12);
        break;
      case 'M':
        text += two(time.tm_min);
        break;
      case 'S':
        text += two(time.tm_sec);
        break;
      case 'B':
        text += month;
        break;
      case 'b':
        text += month.substr(0, 3);
        break;
      case 'A':
        text += day;
        break;
      case 'a':
        text += day.substr(0, 3);
        break;
      case 'p':
        text += time.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'j':
        text += fmt::format(fmt::runtime(plain ? "{}" : "{:03}"), time.tm_yday + 1);
        break;
      case 'F':
        text += fmt::format("{}-{:02}-{:02}", time.tm_year + 1900, time.tm_mon + 1, time.tm_mday);
        break;
      case 'T':
        text += fmt::format("{:02}:{:02}:{:02}", time.tm_hour, time.tm_min, time.tm_sec);
        break;
      case '%':
        text += '%';
        break;
      default:
        fail("strftime_now: unsupported directive in '" + pattern + "'");
    }
  }
  return text;
}

}  // namespace nibble::text::jinja
