// Where a command writes, held against what it reads.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace nibble::apps {

// Before any work: whether `output` can be written and is none of `inputs`, also by way of a link. Of a split model all
// parts are inputs. An empty `output` is a flag that was not given; so is an empty input. "-" is stdin.
Status check_output(const std::string& output, const std::vector<std::string>& inputs);

}  // namespace nibble::apps
