// The zones of a folder: each file below it whose name matches a pattern is a zone, of the name that a template makes of the
// match. Files that come, change and go are noticed at intervals, but none goes while a part of the folder cannot be read, nor
// before a second look, a second later at most, has missed it too. A
// file without a zone is reported once, and its zone is served when it can be read. Of several files for one zone the highest
// in the folder counts, then the first by name.
#pragma once

#include <re2/re2.h>

#include "directive/file/zone_loader.h"

namespace idetcd::directive {

struct AutoSettings {
  std::string directory;
  std::string pattern = R"(db\.(.*))";  // RE2, of a part of the file's name
  std::string origin = "{1}";           // {N}: what the Nth group has matched
  std::vector<dns::Name> zones{};  // of which the zones are, or within which: the server block's where none are named
  std::chrono::milliseconds reload{60'000};  // 0: looked at once
};

// The zone of a file of this name; nothing: none.
std::optional<dns::Name> originOfFile(const std::string& file_name, const re2::RE2& pattern, std::string_view origin);

class ZoneFolder {
 public:
  ZoneFolder(AutoSettings settings, ZoneLoader::Context context);
  // Does not wait for a look that is under way.
  ~ZoneFolder();
  ZoneFolder(const ZoneFolder&) = delete;
  ZoneFolder& operator=(const ZoneFolder&) = delete;

  // Reads the zones that are there, and begins to watch. Blocks on the file system. Once.
  void load();
  // Takes over what has come, changed and gone since the last time. For tests: with an interval this happens by itself.
  void look();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace idetcd::directive
