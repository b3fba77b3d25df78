#include "resolve/directive.h"

namespace idetcd::resolve {

Result<void> Process::checkWritten(const std::string& directory) const {
  if (!written_directories || std::ranges::find(*written_directories, directory) != written_directories->end())
    return {};
  return fail("a directory that was not in the Corefile at the start needs a restart");
}

}  // namespace idetcd::resolve
