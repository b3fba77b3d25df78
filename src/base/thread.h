// Threads that are made while the process serves: the system may have none left.
#pragma once

#include <system_error>
#include <thread>

#include "base/result.h"

namespace idetcd {

template <typename Work>
Result<std::thread> startThread(Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {  // the library has no other way to say it
    return fail(std::string("there is no thread left: ") + error.what(), ErrorCode::kNoResources);
  }
}

}  // namespace idetcd
