// The files that a directive names, as -validate reads them: a server reads them when it starts, and again when they
// change. Looks at the words alone, so that the rest of the directive may be wrong too. Any thread; blocks on the file
// system.
#pragma once

#include "base/result.h"
#include "config/corefile.h"

namespace idetcd::config {

class NamedFiles {
 public:
  struct Line {
    std::vector<std::string> words;
    int number = 0;
  };

  explicit NamedFiles(const Directive& directive);

  // The directive's own line, which begins with its name, and the lines of its block.
  const std::vector<Line>& lines() const { return lines_; }

  // Notes an error at a line, complete with file and line.
  void add(int line, std::string_view text);
  // The content; an error is noted.
  std::optional<std::string> read(const std::string& path, int line);
  // Each line of the block that begins with `tls`. The files of one are read first, so that all that are missing are
  // named; if all can be read, `check` says whether they fit together.
  void checkTls(const std::function<Result<void>(std::span<const std::string> paths)>& check);

  std::vector<Error> errors() && { return std::move(errors_); }

 private:
  const Directive& directive_;
  std::vector<Line> lines_;
  std::vector<Error> errors_;
};

}  // namespace idetcd::config
